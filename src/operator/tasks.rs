//! The tasks that everything leans on, and the order in which they end.

use std::future::Future;

use tokio::task::JoinSet;

use super::error::Error;

/// Tasks of which none may end by itself.
#[derive(Default)]
pub(super) struct Tasks {
    running: JoinSet<(String, Result<(), String>)>,
}

impl Tasks {
    /// Starts one. `name` is for people.
    pub(super) fn start(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        let name = name.into();
        self.running.spawn(async move {
            // A panic is told with the name of the task it was in.
            match tokio::spawn(task).await {
                Ok(outcome) => (name, outcome),
                Err(panic) => (name, Err(panic.to_string())),
            }
        });
    }

    /// Returns when one of them has ended, which none may: why.
    pub(super) async fn died(&mut self) -> Error {
        match self.running.join_next().await {
            None => std::future::pending().await,
            Some(Ok((name, Err(why)))) => Error::Died { name, why },
            Some(Ok((name, Ok(())))) => Error::Died { name, why: "it ended".to_owned() },
            Some(Err(error)) => Error::Died { name: "a task".to_owned(), why: error.to_string() },
        }
    }

    /// Waits until all have ended, now that they have been asked to.
    pub(super) async fn ended(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            if let Ok((name, Err(why))) = ended {
                tracing::warn!(task = name, why, "A task ended badly");
            }
        }
    }
}
