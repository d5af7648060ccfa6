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

    /// Whether an event may be logged at all. The libraries below write whole URIs and CONNECT requests of peers, whose
    /// queries carry credentials.
    #[must_use]
    pub fn is_safe(metadata: &Metadata<'_>) -> bool {
        let library = ["moq_net", "web_transport", "qmux"].iter().any(|name| metadata.target().starts_with(name));
        let telling = ["uri", "url", "request"].iter().any(|name| metadata.fields().field(name).is_some());
        !(library && telling)
    }
}
