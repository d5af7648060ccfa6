//! What is logged.

use super::types::Log;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

impl Log {
    /// The filter that these settings describe. Combine it with [`Self::is_safe`].
    #[must_use]
    pub fn filter(&self) -> EnvFilter {
        let builder = EnvFilter::builder().with_default_directive(LevelFilter::from_level(self.level).into());
        builder.parse_lossy(self.directives.as_deref().unwrap_or_default())
    }

    /// Whether an event may be logged at all. The libraries below write whole URIs, CONNECT requests and messages of peers,
    /// whose paths and queries carry credentials.
    #[must_use]
    pub fn is_safe(metadata: &Metadata<'_>) -> bool {
        let library = ["moq_net", "web_transport", "qmux"].iter().any(|name| metadata.target().starts_with(name));
        let telling = ["uri", "url", "request", "self", "result", "raw", "setup"]
            .iter()
            .any(|name| metadata.fields().field(name).is_some());
        // These modules of moq-net write a peer's whole GOAWAY as the message; they say nothing else at this level.
        let goaway = ["moq_net::ietf::session", "moq_net::ietf::adapter"].contains(&metadata.target())
            && *metadata.level() == tracing::Level::INFO;
        !(library && telling || goaway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A viewer's token is in the query of its URL.
    #[test]
    fn no_event_of_a_library_that_carries_a_uri_is_logged_at_any_level() {
        let settings = Log { level: tracing::Level::TRACE, directives: Some("trace".to_owned()) };
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .with_filter(settings.filter())
            .with_filter(filter_fn(Log::is_safe));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let uri = "https://a.test/?jwt=token";
            tracing::info!(target: "moq_net::lite::publisher", uri = %uri, "received goaway");
            tracing::warn!(target: "moq_net::lite::publisher", %uri, "duplicate");
            tracing::debug!(target: "web_transport_quinn::connect", request = ?uri, "received CONNECT request");
            tracing::trace!(target: "moq_net::lite::message", result = ?uri, "decoded");
            tracing::debug!(target: "moq_net::lite::subscriber", setup = ?uri, "received peer setup");
            tracing::trace!(target: "qmux", url = ?uri, "x");
            tracing::info!(target: "moq_net::ietf::session", "received GOAWAY {uri}");
            tracing::info!(target: "moq_net::lite::subscriber", id = 1, "subscribe started");
            tracing::info!(target: "relay", uri = "shown", "ours");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("token"), "{text}");
        assert!(text.contains("subscribe started") && text.contains("shown"), "{text}");
    }
}
