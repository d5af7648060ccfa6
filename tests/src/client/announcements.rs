//! What a client is told of one broadcast: that it is there, and that it is not any more.

use crate::wait;
use anyhow::ensure;
use moq_net::announce::Kind;
use moq_net::origin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// What a client can be told of a broadcast. Another way to one that is there is nothing that a viewer sees, so it is not
/// among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is there.
    Announced,
    /// It is not there any more.
    Withdrawn,
}

/// Everything that an origin has been told of one path. Dropping it ends it.
#[derive(Debug)]
pub struct Announcements {
    told: Arc<Mutex<Vec<Told>>>,
    task: JoinHandle<()>,
}

impl Announcements {
    /// Listens for `path` in `origin`, from now on; what is there already is announced once.
    #[must_use]
    pub fn of(origin: &origin::Producer, path: &str) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (sink, path) = (told.clone(), path.to_owned());
        let mut updates = origin.consume().announced();
        let task = tokio::spawn(async move {
            while let Some(update) = updates.next().await {
                let what = match update.kind {
                    Kind::Announced => Told::Announced,
                    Kind::Updated => continue,
                    Kind::Retracted => Told::Withdrawn,
                };
                if update.prefix.as_str() == path {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                }
            }
        });
        Self { told, task }
    }

    /// What has been told so far, in its order.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `expected` has been told: that, in this order, and nothing else.
    ///
    /// # Errors
    /// Something else is told, or too little until `deadline`.
    pub async fn are(&self, expected: &[Told], deadline: Duration) -> anyhow::Result<()> {
        wait::until(deadline, &format!("{expected:?}"), || {
            let told = self.told();
            ensure!(expected.starts_with(&told), "told {told:?}, where {expected:?} was expected");
            Ok(told.len() == expected.len())
        })
        .await
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        self.task.abort();
    }
}
