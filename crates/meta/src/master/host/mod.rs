//! The master's side of sessions.

mod dumping;
mod dumps;
mod operations;
mod peer;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::inflight::{About, Request, within};
use cairn_base::{Error, Result, Stage, stage};
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;

use operations::Manner;

use crate::session::{AttachReply, Change, ExecuteReply, ReadReply, Recall, Reply, SessionMethod};
use crate::wire;

pub use peer::{Owner, Sender};
pub use sessions::{Export, SESSIONS_OF_A_USER, Sessions};

/// Time from which on a message is logged as slow.
const SLOW: Duration = Duration::from_secs(1);

/// The answer to a message.
pub enum Answer {
    Bytes(Bytes),
    /// Answer to [`Attach`](crate::session::Attach), and the recalls that follow it.
    Attached(Bytes, UnboundedReceiver<Recall>),
}

impl Sessions {
    /// Answers one message of a peer, as a part of the request that is being worked on.
    pub async fn handle(
        self: &Arc<Self>,
        peer: &Sender,
        method: SessionMethod,
        message: &[u8],
    ) -> Result<Answer> {
        let (client, sessions) = (*peer, Arc::downgrade(self));
        let about = move || About {
            door: "session",
            operation: format!("{method:?}").into(),
            client: client.to_string(),
            waits_for: sessions.upgrade().map(|sessions| sessions.name_awaited()),
            ..About::default()
        };
        let request = Request::new(stage::trace(), about);
        let answering = stage::time(Stage::Meta, self.answer(peer, method, message));
        let answer = self.note_unread(peer, within(request.clone(), answering).await);
        self.note(peer, method, &request);
        answer
    }

    /// Reports a message that is part of a request: in the log, if it took long, and as a span.
    fn note(&self, peer: &Sender, method: SessionMethod, request: &Request) {
        let Some(stages) = stage::snapshot() else { return };
        if stages.total() >= SLOW {
            tracing::warn!(
                trace = %stages.trace,
                client = %peer,
                method = ?method,
                operation = request.operation(),
                elapsed_us = stages.total().as_micros() as u64,
                stages_ms = %stages,
                "slow request of a session"
            );
        }
        if stages.trace.sampled
            && let (Some(export), Some(operation)) = (self.export.get(), request.operation())
            && self.is_exported(peer)
        {
            export(operation, stages);
        }
    }

    /// Answers a message.
    ///
    /// # Errors
    /// If the message cannot be read.
    async fn answer(&self, peer: &Sender, method: SessionMethod, message: &[u8]) -> Result<Answer> {
        let bytes = match method {
            SessionMethod::Attach
            | SessionMethod::AttachToReplay
            | SessionMethod::AttachHolding => {
                let attached = self.attach(peer, method, &wire::decode(message)?).await;
                return match attached {
                    Ok((attached, recalls)) => {
                        Ok(Answer::Attached(self.reply(Ok(Some(attached)))?, recalls))
                    }
                    Err(error) => self.reply::<AttachReply>(Err(error)).map(Answer::Bytes),
                };
            }
            SessionMethod::Bind => self.reply(self.bind(peer, &wire::decode(message)?).await),
            SessionMethod::Succeed => self.reply(self.succeed(peer, &wire::decode(message)?)),
            SessionMethod::Renew => self.reply(self.renew(peer, &wire::decode(message)?)),
            SessionMethod::Read => self.reply(self.read(peer, wire::decode(message)?).await),
            SessionMethod::Run => {
                let change = Change { run: wire::decode(message)?, released: Vec::new() };
                let ran = self.run(peer, change, Manner::default()).await;
                self.reply(ran.map(|ran| ran.map(|ran| ran.reply)))
            }
            SessionMethod::Change => {
                let manner = Manner { lease: true, ..Manner::default() };
                let ran = self.run(peer, wire::decode(message)?, manner).await;
                let read = |ran: ExecuteReply| ReadReply { reply: Ok(ran.reply), rows: ran.rows };
                self.reply(ran.map(|ran| ran.map(read)))
            }
            SessionMethod::Execute => self.reply(self.execute(peer, wire::decode(message)?).await),
            SessionMethod::Delegate => {
                self.reply(self.delegate(peer, wire::decode(message)?).await)
            }
            SessionMethod::RunPosted => {
                self.reply(self.run_posted(peer, wire::decode(message)?).await)
            }
            SessionMethod::GiveBack => self.reply(self.give_back(peer, wire::decode(message)?)),
            SessionMethod::DumpRows => {
                self.reply(self.dump_rows(peer, wire::decode(message)?).await)
            }
            SessionMethod::Flush => self.reply(self.flush(peer, &wire::decode(message)?).await),
            SessionMethod::Replayed => self.reply(self.replayed(peer, &wire::decode(message)?)),
            SessionMethod::Detach => self.reply(self.detach(peer, &wire::decode(message)?).await),
            SessionMethod::Acknowledge => {
                self.reply(self.acknowledge(peer, &wire::decode(message)?))
            }
        };
        bytes.map(Answer::Bytes)
    }

    /// Encodes the result; `None` stands for a session that is not attached.
    fn reply<T: Serialize>(&self, result: Result<Option<T>>) -> Result<Bytes> {
        wire::encode(&match result {
            Ok(Some(done)) => Reply::Done(done),
            Ok(None) => Reply::NotAttached,
            Err(error @ Error::Unavailable(_)) if self.master.check_serving().is_err() => {
                Reply::NotServing(error.to_string())
            }
            Err(error) => Reply::Failed(error),
        })
    }
}
