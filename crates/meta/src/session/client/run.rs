//! Runs operations: each takes effect once, whatever becomes of masters and connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::{Error, Result, stage};
use tokio::time::Instant;

use super::inner::{Forgotten, Inner};
use crate::WireVerb;
use crate::ops::mkdir::Mkdir;
use crate::session::messages::{ExecuteReply, ReadReply, Reply};
use crate::session::operation::Operation;
use crate::session::step::{GIVEN_UP, unanswered};

/// The outcome of an operation.
pub struct Ran {
    pub reply: Result<Bytes>,
    /// Rows that the operation changed, if they are leased.
    rows: Vec<(Bytes, Option<Bytes>)>,
    /// Set if the operation can no longer run at a master.
    is_over: bool,
}

impl Inner {
    /// Runs an operation for a caller that has waited since `began`, and waits for its reply.
    pub async fn run_in_time(
        self: &Arc<Inner>,
        operation: Operation,
        began: Instant,
    ) -> Result<Bytes> {
        let operation = Arc::new(operation);
        let run = {
            let (inner, operation) = (Arc::clone(self), Arc::clone(&operation));
            async move { inner.run(&operation).await }
        };
        if operation.changes().is_empty() {
            return match self.connection.in_time(began, run).await {
                Ok(reply) => reply,
                Err(why) => Err(unanswered(operation.step().is_sent(), &why)),
            };
        }
        // Once sent, the operation goes on until its outcome is known, whether somebody waits or
        // not.
        let mut running = tokio::spawn(stage::part(run));
        let ran = match self.connection.in_time(began, &mut running).await {
            Ok(ran) => ran,
            Err(why) if operation.step().give_up() => return Err(unanswered(false, &why)),
            Err(why) if self.unknown.add(&operation) => return Err(unanswered(true, &why)),
            Err(_) => running.await,
        };
        let stopped = |_| Error::Unavailable("outcome unknown: the client is stopping".into());
        ran.map_err(stopped)?
    }

    async fn run(&self, operation: &Arc<Operation>) -> Result<Bytes> {
        let changes = operation.changes();
        // Later operations of the caller on these rows wait until this one is over, so that it
        // cannot run after them.
        let _over = self.unknown.until_over(operation);
        operation.step().unless_given_up(self.unknown.before(changes)).await?;
        let _barring = self.keeper.as_ref().map(|_| self.posts.bar(changes));
        if self.keeper.is_some() {
            operation.step().unless_given_up(self.posts.drained()).await?;
        }
        if changes.is_empty() {
            return self.send(operation).await.reply;
        }
        let changing = self.rows.change(changes);
        self.forgotten(Forgotten::Changing(changes));
        let Ran { reply, rows, is_over } = self.send(operation).await;
        if is_over {
            changing.done(rows);
        }
        self.forgotten(Forgotten::Changed);
        self.watches.wake(changes);
        reply
    }

    pub async fn send(&self, operation: &Arc<Operation>) -> Ran {
        let mut sent = false;
        let known = operation.step().unless_given_up(self.send_until_known(operation, &mut sent));
        match known.await.and_then(|known| known) {
            Ok(ReadReply { reply, rows }) => Ran { is_over: reply.is_ok() || !sent, reply, rows },
            Err(error) => Ran { reply: Err(error), rows: Vec::new(), is_over: !sent },
        }
    }

    /// Sends an operation until its outcome is known. Sets `sent` once it may have reached a master
    /// without an answer.
    async fn send_until_known(
        &self,
        operation: &Arc<Operation>,
        sent: &mut bool,
    ) -> Result<ReadReply> {
        let (mut session, mut slot) = self.take_slot().await?;
        loop {
            // An operation that was sent may have been done: its outcome is unknown until there is
            // a master.
            let attachment = if *sent {
                self.connection.attached_at_last().await?
            } else {
                self.connection.attached().await?
            };
            if attachment.session != session {
                if *sent {
                    let text = format!("outcome unknown: session {session} was lost");
                    return Err(Error::Unavailable(text));
                }
                (session, slot) = self.take_slot().await?;
                continue;
            }
            if !operation.step().send() {
                return Err(unanswered(false, GIVEN_UP));
            }
            let run = operation.in_slot(session, &slot);
            self.counters.calls.fetch_add(1, Ordering::Relaxed);
            let answer = match &self.keeper {
                Some(keeper) if !operation.is_durable() => {
                    let answer = operation.execute(&*attachment.link, run, None).await;
                    if let Ok(Reply::Done(ExecuteReply { ino: Some(ino), .. })) = &answer
                        && operation.verb() == Mkdir::NUMBER
                    {
                        self.posts.made(*ino);
                    }
                    let number = attachment.number;
                    answer.and_then(|answer| keeper.kept(number, operation, &slot, answer))
                }
                _ => operation.call(&*attachment.link, run).await,
            };
            match answer {
                Ok(Reply::Done(done)) => return Ok(done),
                Ok(Reply::Failed(error)) => {
                    return Ok(ReadReply { reply: Err(error), rows: Vec::new() });
                }
                Ok(Reply::NotAttached) => {}
                Ok(Reply::NotServing(_)) | Err(_) => *sent = true,
            }
            self.connection.lost(&attachment.link);
        }
    }
}
