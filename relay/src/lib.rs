//! A thin, complete MoQ relay that can be replaced under load.
