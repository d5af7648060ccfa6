//! Answering for dead generations.

use protocol::child::Estate;
use protocol::quinn::{Endpoints, Told};

/// Answers for these from now on, and tells their clients that they are gone.
pub(crate) fn inherit(endpoints: &Endpoints, estates: Vec<Estate>) {
    let dead: Vec<u32> = estates.iter().map(|estate| estate.generation.0).collect();
    for estate in &estates {
        if let Some(Err(error)) = &estate.ledger {
            tracing::warn!(generation = %estate.generation, %error, "its clients hear of its end at their next packets");
        }
    }
    let telling = endpoints.inherit(estates);
    tokio::spawn(async move {
        let Told { sent, skipped, unreadable } = telling.await;
        tracing::info!(?dead, told = sent, skipped, unreadable, "answering for dead generations");
    });
}
