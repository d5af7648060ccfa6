//! Requests that outlive their end for a moment, while this process drains.
//!
//! `moq-net` gives up what it has subscribed to upstream as soon as nobody subscribes to it any more. When a client or peer
//! moves to the successor, its old subscription here ends some round trips before the new one has come up the new path; up to
//! where the two meet, every relay would cancel and subscribe again, each a chance to lose the rest of a group. So a relay that
//! drains notices the end of a request [`LINGER`] late. `docs/design/overlap.md`, "Moving".
//!
//! A request is a bidirectional stream that the peer opened, in every version of moq-lite and since draft 17 of moq-transport;
//! older drafts cancel by a message, which passes.

use crate::role::Role;
use bytes::{BufMut, Bytes};
use moq_net::web_transport_trait::{Stats, poll};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Sleep;

/// How long: for a subscription to come up a path of several hops.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// A transport session whose peer's requests linger.
#[derive(Clone)]
pub(crate) struct Session<S> {
    inner: S,
    role: watch::Receiver<Role>,
}

impl<S> Session<S> {
    /// Over that one, in a process that has this role.
    pub(crate) fn new(inner: S, role: watch::Receiver<Role>) -> Self {
        Self { inner, role }
    }
}

impl<S: poll::Session> poll::Session for Session<S> {
    type SendStream = S::SendStream;
    type RecvStream = RecvStream<S::RecvStream>;
    type Error = S::Error;

    fn poll_accept_uni(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::RecvStream, Self::Error>> {
        self.inner.poll_accept_uni(cx).map_ok(RecvStream::plain)
    }

    fn poll_accept_bi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Self::SendStream, Self::RecvStream), Self::Error>> {
        self.inner.poll_accept_bi(cx).map_ok(|(send, recv)| (send, RecvStream::request(recv, self.role.clone())))
    }

    fn poll_open_uni(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::SendStream, Self::Error>> {
        self.inner.poll_open_uni(cx)
    }

    fn poll_open_bi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Self::SendStream, Self::RecvStream), Self::Error>> {
        self.inner.poll_open_bi(cx).map_ok(|(send, recv)| (send, RecvStream::plain(recv)))
    }

    fn poll_send_datagram(&mut self, cx: &mut Context<'_>, payload: &[u8]) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_send_datagram(cx, payload)
    }

    fn poll_recv_datagram(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Self::Error>> {
        self.inner.poll_recv_datagram(cx)
    }

    fn max_datagram_size(&self) -> usize {
        self.inner.max_datagram_size()
    }

    fn protocol(&self) -> Option<&str> {
        self.inner.protocol()
    }

    fn close(&mut self, code: u32, reason: &str) {
        self.inner.close(code, reason);
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Self::Error> {
        self.inner.poll_closed(cx)
    }

    fn stats(&self) -> impl Stats {
        self.inner.stats()
    }
}

/// The receiving half of a stream.
pub(crate) struct RecvStream<R: poll::RecvStream> {
    inner: R,
    end: End<R::Error>,
}

/// What the end of a stream is.
enum End<E> {
    /// Told as it comes.
    Plain,
    /// Told late if it comes while the role says so.
    Late(watch::Receiver<Role>),
    /// It has come, and is told after this.
    Waits(Pin<Box<Sleep>>, Result<(), E>),
}

impl<R: poll::RecvStream> RecvStream<R> {
    fn plain(inner: R) -> Self {
        Self { inner, end: End::Plain }
    }

    fn request(inner: R, role: watch::Receiver<Role>) -> Self {
        Self { inner, end: End::Late(role) }
    }

    /// The end that has come, once it is time; `None`: none has, or it has been told.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), R::Error>>> {
        match &mut self.end {
            End::Plain | End::Late(_) => return Poll::Ready(None),
            End::Waits(time, _) => ready!(time.as_mut().poll(cx)),
        }
        match std::mem::replace(&mut self.end, End::Plain) {
            End::Waits(_, end) => Poll::Ready(Some(end)),
            End::Plain | End::Late(_) => Poll::Ready(None),
        }
    }

    /// The end has come: tells it now or keeps it.
    fn poll_end(&mut self, cx: &mut Context<'_>, end: Result<(), R::Error>) -> Poll<Result<(), R::Error>> {
        match &self.end {
            End::Late(role) if role.borrow().is_draining() => {
                let mut time = Box::pin(tokio::time::sleep(LINGER));
                if time.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(end);
                }
                self.end = End::Waits(time, end);
                Poll::Pending
            }
            End::Plain | End::Late(_) | End::Waits(..) => Poll::Ready(end),
        }
    }

    /// Reads by `read`, whose `None` is the end.
    fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut R, &mut Context<'_>) -> Poll<Result<Option<T>, R::Error>>,
    ) -> Poll<Result<Option<T>, R::Error>> {
        if let Some(end) = ready!(self.poll_waiting(cx)) {
            return Poll::Ready(end.map(|()| None));
        }
        let end = match ready!(read(&mut self.inner, cx)) {
            Ok(Some(some)) => return Poll::Ready(Ok(Some(some))),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.poll_end(cx, end).map_ok(|()| None)
    }
}

impl<R: poll::RecvStream> poll::RecvStream for RecvStream<R> {
    type Error = R::Error;

    fn poll_read(&mut self, cx: &mut Context<'_>, dst: &mut [u8]) -> Poll<Result<Option<usize>, Self::Error>> {
        self.poll_with(cx, |inner, cx| inner.poll_read(cx, dst))
    }

    fn poll_read_buf<B: BufMut>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<Result<Option<usize>, Self::Error>> {
        self.poll_with(cx, |inner, cx| inner.poll_read_buf(cx, buf))
    }

    fn poll_read_chunk(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Option<Bytes>, Self::Error>> {
        self.poll_with(cx, |inner, cx| inner.poll_read_chunk(cx, max))
    }

    fn stop(&mut self, code: u32) {
        self.inner.stop(code);
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if let Some(end) = ready!(self.poll_waiting(cx)) {
            return Poll::Ready(end);
        }
        let end = ready!(self.inner.poll_closed(cx));
        self.poll_end(cx, end)
    }
}

#[cfg(test)]
mod tests;
