//! The master's side of sessions.

mod operations;
mod peer;
mod sessions;

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::inflight::{About, Request, within};
use cairn_base::{Error, Result};
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;

use operations::Manner;

use crate::session::{Attached, Change, Executed, Method, ReadReply, Recall, Reply};
use crate::wire;

pub use peer::{Owner, Peer};
pub use sessions::{SESSIONS_OF_A_USER, Sessions};

/// The answer to a message.
pub enum Answer {
    Bytes(Bytes),
    /// That of [`Attach`](crate::session::Attach), and the recalls that are to follow.
    Attached(Bytes, UnboundedReceiver<Recall>),
}

impl Sessions {
    /// Answers one message of a peer.
    pub async fn handle(
        self: &Arc<Self>,
        peer: &Peer,
        method: Method,
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
        within(Request::new(None, about), self.answer(peer, method, message)).await
    }

    async fn answer(&self, peer: &Peer, method: Method, message: &[u8]) -> Result<Answer> {
        let bytes = match method {
            Method::Attach | Method::AttachToReplay => {
                let hasty = method == Method::AttachToReplay;
                let attached = self.attach(peer, &wire::decode(message)?, hasty).await;
                return match attached {
                    Ok((attached, recalls)) => {
                        Ok(Answer::Attached(self.reply(Ok(Some(attached)))?, recalls))
                    }
                    Err(error) => self.reply::<Attached>(Err(error)).map(Answer::Bytes),
                };
            }
            Method::Renew => self.reply(self.renew(peer, &wire::decode(message)?)),
            Method::Read => self.reply(self.read(peer, wire::decode(message)?).await),
            Method::Run => {
                let change = Change { run: wire::decode(message)?, released: Vec::new() };
                let ran = self.run(peer, change, Manner::default()).await;
                self.reply(ran.map(|ran| ran.map(|ran| ran.reply)))
            }
            Method::Change => {
                let manner = Manner { lease: true, ..Manner::default() };
                let ran = self.run(peer, wire::decode(message)?, manner).await;
                let read = |ran: Executed| ReadReply { reply: Ok(ran.reply), rows: ran.rows };
                self.reply(ran.map(|ran| ran.map(read)))
            }
            Method::Execute => self.reply(self.execute(peer, wire::decode(message)?).await),
            Method::Delegate => self.reply(self.delegate(peer, wire::decode(message)?).await),
            Method::RunPosted => self.reply(self.run_posted(peer, wire::decode(message)?).await),
            Method::GiveBack => self.reply(self.give_back(peer, wire::decode(message)?)),
            Method::Flush => self.reply(self.flush(peer, &wire::decode(message)?).await),
            Method::Replayed => self.reply(self.replayed(peer, &wire::decode(message)?)),
            Method::Detach => self.reply(self.detach(peer, &wire::decode(message)?).await),
            Method::Acknowledge => self.reply(self.acknowledge(peer, &wire::decode(message)?)),
        };
        bytes.map(Answer::Bytes)
    }

    /// `None` stands for a session that is not attached.
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
