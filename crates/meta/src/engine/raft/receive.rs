//! Messages of other members, and their answers.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};
use openraft::Snapshot;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::Change;
use super::entry::{Entry, EntryId};
use super::member::Member;
use super::message::{self, AppendOutcome, Envelope, Message, Reply};
use super::outgoing::SnapshotState;
use super::receiving::{Receiving, take_receiving};
use super::record::Vote;
use super::types::{Rows, library_vote, log_entry, log_id, meta_of, vote_of};

/// The reason for which a member gives no vote for now.
const SUSPECT: &str = "the end of this member's log may be lost: it does not vote yet";

/// The fields of a message that appends.
struct Append {
    vote: Vote,
    before: Option<EntryId>,
    committed: Option<EntryId>,
    entries: Vec<Entry>,
}

/// The result of the first look at a message.
enum FirstLook {
    /// The message has to be answered, which takes a permit.
    Taken(Message, OwnedSemaphorePermit),
    Answered(Reply),
    /// The message is of this generation, in which this member is no longer a member.
    Superseded(u64),
}

impl Member {
    /// Answers a message that the member `from` sent, which was authenticated. The work goes on
    /// in a task of its own: an answer that takes long, such as that to entries for a slow disk,
    /// holds up no other message.
    pub async fn receive(self: &Arc<Self>, from: u64, bytes: Bytes) -> Bytes {
        let reply = match self.begin(from, &bytes) {
            Ok(FirstLook::Answered(reply)) => Ok(reply),
            Ok(FirstLook::Superseded(generation)) => {
                self.shared.supersede(generation).await;
                Err(Error::Denied(self.shared.superseded().unwrap_or_default()))
            }
            Ok(FirstLook::Taken(message, permit)) => {
                let member = Arc::clone(self);
                let task = self.runtime.spawn(async move {
                    let _permit = permit;
                    member.answer(from, message).await
                });
                let ended = |_| Err(Error::Unavailable("this member ends".into()));
                task.await.unwrap_or_else(ended)
            }
            Err(error) => Err(error),
        };
        let refused = |error: Error| Reply::Refused { reason: error.to_string() };
        message::encode_reply(&reply.unwrap_or_else(refused))
    }

    fn begin(&self, from: u64, bytes: &Bytes) -> Result<FirstLook> {
        let (Envelope { generation, from: sender, to }, message) = message::parse(bytes)?;
        if sender != from || to != self.shared.me {
            let text = format!("member {sender} to {to}, which {from} sent to {}", self.shared.me);
            return Err(Error::Denied(format!("a message of {text}")));
        }
        match generation.cmp(&self.shared.generation) {
            Ordering::Less | Ordering::Greater if is_planted(Bug::FormerNotTold) => {
                return Err(Error::Denied("a message of another generation".into()));
            }
            Ordering::Less => {
                let generation = self.shared.generation;
                return Ok(FirstLook::Answered(Reply::Superseded { generation }));
            }
            Ordering::Greater => return Ok(FirstLook::Superseded(generation)),
            Ordering::Equal => {}
        }
        if let Some(why) = self.shared.superseded() {
            return Err(Error::Denied(why));
        }
        if self.shared.is_ending() {
            return Err(Error::Unavailable("this member ends".into()));
        }
        let which: &Arc<Semaphore> = match message {
            Message::Vote { .. }
            | Message::Ask { .. }
            | Message::Probe
            | Message::HandOver { .. }
            | Message::Compare
            | Message::Digests => &self.votes,
            _ => &self.messages,
        };
        let permit = Arc::clone(which).try_acquire_owned();
        let permit = permit.map_err(|_| Error::Unavailable("too many messages at once".into()))?;
        Ok(FirstLook::Taken(message, permit))
    }

    async fn answer(&self, from: u64, message: Message) -> Result<Reply> {
        match message {
            Message::Append { vote, before, committed, entries } => {
                self.append(Append { vote, before, committed, entries }).await
            }
            Message::Vote { vote, last } => self.vote(vote, last).await,
            Message::Ask { last } => self.would_vote(from, last).await,
            Message::Probe => Ok(Reply::Heard),
            Message::Compare => {
                self.shared.store.await_comparison();
                Ok(Reply::Heard)
            }
            Message::Digests => Ok(Reply::Digests(self.shared.store.digests())),
            Message::HandOver { vote, last, begins } => {
                self.would_lead(from, vote, last, begins).await
            }
            Message::Begin { vote, transfer, taken } => {
                self.begin_snapshot(from, vote, transfer, taken).await
            }
            Message::Page { transfer, number, rows } => {
                self.take_page(from, transfer, number, rows).await
            }
            Message::End { vote, transfer, pages } => {
                self.end_snapshot(from, transfer, vote, pages).await
            }
        }
    }

    async fn append(&self, append: Append) -> Result<Reply> {
        let request = AppendEntriesRequest {
            vote: library_vote(append.vote),
            prev_log_id: append.before.map(log_id),
            entries: append.entries.into_iter().map(log_entry).collect(),
            leader_commit: append.committed.map(log_id),
        };
        let heard = self.shared.now();
        let done = self.raft.append_entries(request).await.map_err(refused)?;
        if !matches!(done, AppendEntriesResponse::HigherVote(_)) {
            self.shared.contact.hear_leader(heard);
        }
        if matches!(done, AppendEntriesResponse::Success)
            && self.shared.store.has_regained(append.vote, append.committed)
        {
            self.shared.contact.clear_suspicion();
        }
        Ok(Reply::Appended(match done {
            AppendEntriesResponse::Success => AppendOutcome::All,
            AppendEntriesResponse::PartialSuccess(id) => {
                AppendOutcome::UpTo(id.map(super::types::id_of))
            }
            AppendEntriesResponse::Conflict => AppendOutcome::Conflict,
            AppendEntriesResponse::HigherVote(vote) => AppendOutcome::HigherVote(vote_of(&vote)),
        }))
    }

    async fn vote(&self, vote: Vote, last: Option<EntryId>) -> Result<Reply> {
        if self.shared.contact.is_suspect(self.shared.now()) {
            return Err(Error::Unavailable(SUSPECT.into()));
        }
        let request = VoteRequest::new(library_vote(vote), last.map(log_id));
        let response = self.raft.vote(request).await.map_err(refused)?;
        Ok(Reply::Voted {
            vote: vote_of(&response.vote),
            granted: response.vote_granted,
            last: response.last_log_id.map(super::types::id_of),
        })
    }

    /// Answers whether this member would vote for `from`, whose log ends at `last`. A member
    /// without a vote, as far as this member knows, was removed, or got its vote in an entry that
    /// is not here yet. Only in the second case it has more of the log: without its election nobody
    /// could send that entry.
    async fn would_vote(&self, from: u64, last: Option<EntryId>) -> Result<Reply> {
        let view = self.view().await?;
        let shared = &self.shared;
        let silence = shared.now().saturating_sub(shared.contact.heard_leader());
        let leads = view.leads && !shared.contact.is_deaf();
        let yes = !leads
            && !shared.contact.is_suspect(shared.now())
            && (view.leads || silence > shared.timing.silence())
            && if view.names_nobody() || view.is_voter(from) {
                last >= shared.store.last()
            } else {
                last > shared.store.last()
            };
        Ok(Reply::Asked { yes })
    }

    async fn begin_snapshot(
        &self,
        from: u64,
        vote: Vote,
        transfer: u64,
        taken: SnapshotState,
    ) -> Result<Reply> {
        let ours = self.view().await?.vote;
        let mut receiving = self.receiving.lock().await;
        if vote.term < ours.term {
            return Ok(Reply::Installed { vote: ours });
        }
        *receiving = None;
        let incoming = self.shared.with_store(|store| store.receive_snapshot()).await?;
        *receiving = Some(Receiving { from, transfer, next: 0, taken, incoming });
        Ok(Reply::Heard)
    }

    async fn take_page(
        &self,
        from: u64,
        transfer: u64,
        number: u64,
        rows: Vec<Change>,
    ) -> Result<Reply> {
        let mut slot = self.receiving.lock().await;
        let mut receiving = take_receiving(&mut slot, from, transfer, number)?;
        if rows.iter().any(|(_, row)| row.is_none()) {
            return Err(Error::Invalid("a snapshot with a deleted row".into()));
        }
        let page = rows.into_iter().filter_map(|(key, row)| Some((key, row?))).collect();
        let adding = self.shared.with_store(move |_| {
            receiving.incoming.add(page)?;
            Ok(receiving)
        });
        let receiving = adding.await?;
        *slot = Some(Receiving { next: number + 1, ..receiving });
        Ok(Reply::Heard)
    }

    async fn end_snapshot(
        &self,
        from: u64,
        transfer: u64,
        vote: Vote,
        pages: u64,
    ) -> Result<Reply> {
        // No other snapshot begins until this one is in place: it would void this one, which the
        // library may rely on already.
        let mut slot = self.receiving.lock().await;
        let mut received = take_receiving(&mut slot, from, transfer, pages)?;
        let syncing = self.shared.with_store(move |_| {
            received.incoming.sync()?;
            Ok(received)
        });
        let Receiving { taken, incoming, .. } = syncing.await?;
        let meta = meta_of(&taken);
        let rows = Rows::Received(Box::new((taken, incoming)));
        let snapshot = Snapshot { meta, snapshot: Box::new(rows) };
        let installed = self.raft.install_full_snapshot(library_vote(vote), snapshot).await;
        let response = installed.map_err(|fatal| Error::Unavailable(fatal.to_string()))?;
        Ok(Reply::Installed { vote: vote_of(&response.vote) })
    }
}

fn refused(error: openraft::error::RaftError<u64>) -> Error {
    Error::Unavailable(error.to_string())
}
