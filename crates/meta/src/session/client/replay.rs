//! Handles executed operations until they are durable: asks which are, and sends the others again
//! to a master that may not know them.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result, SessionId};
use tokio::time::{sleep, timeout};

use super::inner::Inner;
use crate::session::connection::Attachment;
use crate::session::kept_operations::KeptOperations;
use crate::session::link::{MasterLink, call};
use crate::session::messages::{ExecuteReply, Flush, Progress, ReplayEnd, Reply, SessionMethod};

/// Longest time for which an operation is kept after it is durable.
const FLUSH: Duration = Duration::from_millis(100);

impl Inner {
    /// Waits until no operation numbered `number` or less is kept.
    pub async fn flush(&self, keeper: &KeptOperations, number: u64) -> Result<()> {
        loop {
            let Attachment { session, link, number: attached, .. } =
                self.connection.attached().await?;
            let (attachment, serial) = keeper.serial_of(number);
            if attachment != attached {
                continue;
            }
            let Some(serial) = serial else { return Ok(()) };
            match call::<_, Progress>(&*link, SessionMethod::Flush, &Flush { session, serial })
                .await
            {
                Ok(Reply::Done(progress)) => keeper.note(attachment, progress),
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => {
                    self.connection.lost(&link)
                }
            }
        }
    }

    /// Asks, after a while, which kept operations are durable, so that they are not kept for long.
    pub async fn flush_in_a_while(&self) {
        let Some(keeper) = &self.keeper else { return };
        let _ = timeout(FLUSH, keeper.many()).await;
        if let Err(error) = self.flush(keeper, keeper.last_number()).await {
            tracing::debug!(%error, "operations are kept");
            sleep(FLUSH).await;
        }
    }

    /// Sends kept and posted operations again, before anything else is asked of the master of a new
    /// attachment, and returns its number. Operations of a lost session are not sent again.
    pub async fn replay(
        &self,
        keeper: &KeptOperations,
        link: &dyn MasterLink,
        session: SessionId,
        is_known: bool,
    ) -> Result<u64> {
        let (attachment, kept) = keeper.begin();
        if !is_known && !kept.is_empty() {
            tracing::error!(
                operations = kept.len(),
                "done, not durable, and LOST with the session"
            );
            keeper.lose(kept.len());
        }
        let is_sent = is_known && !is_planted(Bug::ReplaysForgotten);
        let mut kept = kept.into_iter().filter(|_| is_sent).peekable();
        while let Some(one) = kept.peek() {
            match one.execute(link, session).await {
                Ok(Reply::Done(Ok(ExecuteReply { serial, progress, .. }))) => {
                    keeper.keep_again(serial, Arc::clone(one));
                    keeper.note(attachment, progress);
                }
                Ok(Reply::Done(Err(error)) | Reply::Failed(error)) => {
                    let verb = one.operation.name();
                    tracing::error!(verb, %error, "done, not durable, and LOST: it could not be done again");
                    keeper.lose(1);
                }
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => {
                    keeper.put_back(kept);
                    return Err(unserved(
                        "the connection was lost while operations were sent again",
                    ));
                }
            }
            kept.next();
        }
        loop {
            let batch = self.posts.batch();
            if batch.is_empty() {
                break;
            }
            if self.send_batch(keeper, session, attachment, link, batch).await.is_err() {
                keeper.put_back(std::iter::empty());
                return Err(unserved("the connection was lost while posted operations were sent"));
            }
        }
        match call::<_, ()>(link, SessionMethod::Replayed, &ReplayEnd { session }).await {
            Ok(Reply::Done(())) => Ok(attachment),
            _ => {
                keeper.put_back(std::iter::empty());
                Err(unserved("the connection was lost after operations were sent again"))
            }
        }
    }
}

pub fn unserved(why: &str) -> Error {
    Error::Unavailable(format!("the master does not serve: {why}"))
}
