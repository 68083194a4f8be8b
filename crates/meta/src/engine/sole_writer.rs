//! Commits of a program that writes without a master.

use cairn_base::{Error, Result};

use super::{Change, CommitError, Engine, Fence};

/// The only writer of an engine: commits batches of changes, one after another, and stops once
/// another process has taken over.
pub struct SoleWriter<'a> {
    engine: &'a dyn Engine,
    fence: Fence,
}

impl<'a> SoleWriter<'a> {
    /// Takes over from all who wrote before, and raises the batch to `batch` if it is lower.
    ///
    /// # Errors
    /// Those of [`Engine::take_over_at`].
    pub fn take_over(engine: &'a dyn Engine, batch: u64) -> Result<SoleWriter<'a>> {
        let fence = engine.take_over_at(batch)?;
        Ok(SoleWriter { engine, fence })
    }

    /// Commits changes, if there are any. A commit whose outcome is unknown is asked for again.
    ///
    /// # Errors
    /// `Unavailable` if another process has taken over; those of the engine.
    pub fn commit(&mut self, changes: Vec<Change>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let done = Fence { batch: self.fence.batch + 1, ..self.fence };
        loop {
            match self.engine.commit(self.fence, changes.clone()) {
                Ok(()) => break,
                Err(CommitError::Failed(error) | CommitError::Poisoned(error)) => {
                    return Err(error);
                }
                Err(CommitError::Fenced { found }) => return Err(fenced(found)),
                Err(CommitError::Unknown(error)) => {
                    tracing::warn!(%error, "rows may or may not be committed");
                    match self.engine.fence()? {
                        found if found == done => break,
                        found if found == self.fence => {}
                        found => return Err(fenced(found)),
                    }
                }
            }
        }
        self.fence = done;
        Ok(())
    }
}

fn fenced(found: Fence) -> Error {
    let Fence { epoch, batch } = found;
    Error::Unavailable(format!(
        "another process changed the metadata meanwhile: they are at epoch {epoch}, batch {batch}"
    ))
}
