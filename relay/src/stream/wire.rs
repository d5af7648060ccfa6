//! Byte streams whose end can be waited for.
//!
//! qmux writes what is still queued, a close first of all, in a task of its own, and drops the stream when that is done. So
//! the stream is what says it: it holds a handle for as long as it lives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// All that are open.
#[derive(Debug, Default)]
pub(crate) struct Wires(watch::Sender<()>);

impl Wires {
    /// One more.
    pub(crate) fn hold<S>(&self, stream: S) -> Wire<S> {
        Wire { stream, _open: self.0.subscribe() }
    }

    /// Waits until none is open.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    _open: watch::Receiver<()>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::Wires;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn the_end_comes_with_the_last_one() {
        let wires = Wires::default();
        assert!(wires.closed().now_or_never().is_some());
        let (one, _other_end) = tokio::io::duplex(1);
        let (reader, writer) = tokio::io::split(wires.hold(one));
        drop(reader);
        assert!(wires.closed().now_or_never().is_none());
        drop(writer);
        assert!(wires.closed().now_or_never().is_some());
    }
}
