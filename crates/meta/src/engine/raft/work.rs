//! Runs blocking work away from async tasks.

#![expect(clippy::disallowed_methods, reason = "where no simulation gives threads")]

use std::sync::Arc;

use cairn_base::{Error, Result, Threads};
use tokio::sync::oneshot;

/// Runs blocking work where that is allowed.
///
/// # Errors
/// Those of the work; `Unavailable` if its thread ended.
pub async fn blocking<T: Send + 'static>(
    threads: Option<&Arc<dyn Threads>>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = || Error::Unavailable("the thread of a call to the disk ended".into());
    match threads {
        None => tokio::task::spawn_blocking(work).await.map_err(|_| ended())?,
        Some(threads) => {
            let (sender, receiver) = oneshot::channel();
            threads.run(Box::new(move || drop(sender.send(work()))));
            receiver.await.map_err(|_| ended())?
        }
    }
}
