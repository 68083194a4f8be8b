//! The library's network, which sends its calls as messages to other members.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend, Snapshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::entry::Entry;
use super::message::{self, AppendOutcome, Envelope, Message, Reply};
use super::outgoing::Outgoing;
use super::shared::MemberShared;
use super::types::{Rows, Types, entry_of, id_of, library_vote, log_id, vote_of};

/// Pause after a failed call, before the library may make another one: the library does not wait
/// itself.
const PAUSE: Duration = Duration::from_millis(20);
/// Timeout of the answer to one part of a snapshot.
const SECTION_PATIENCE: Duration = Duration::from_secs(30);

type CallError = RPCError<u64, EmptyNode, RaftError<u64>>;

/// Makes the links to other members.
pub struct Network {
    pub shared: Arc<MemberShared>,
}

/// The link to one member.
pub struct Link {
    shared: Arc<MemberShared>,
    target: u64,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _: &EmptyNode) -> Link {
        Link { shared: Arc::clone(&self.shared), target }
    }
}

/// Sends a message and waits for the answer, but not beyond the end of this member.
///
/// # Errors
/// `Unavailable` and others of the network; `Invalid` for a malformed answer.
pub async fn call(shared: &MemberShared, target: u64, message: &Message) -> Result<Reply> {
    if let Some(why) = shared.superseded() {
        return Err(Error::Denied(why));
    }
    let envelope = Envelope { generation: shared.generation, from: shared.me, to: target };
    let bytes: Bytes = message::encode(envelope, message)?;
    let sent = shared.now();
    let reply = tokio::select! {
        biased;
        () = shared.wait_ending() => Err(Error::Unavailable("this member ends".into())),
        reply = shared.seams.peers.send(target, bytes) => reply,
    };
    let reply = message::parse_reply(&reply?)?;
    if let Reply::Superseded { generation } = reply {
        shared.supersede(generation).await;
        return Err(Error::Denied(format!("member {target} is of generation {generation}")));
    }
    shared.contact.answered(target, sent);
    Ok(reply)
}

/// Asks `others` at once; returns those that agreed, or that hear this member.
pub async fn ask_each(
    shared: &Arc<MemberShared>,
    others: BTreeSet<u64>,
    message: &Message,
) -> BTreeSet<u64> {
    let mut asking = JoinSet::new();
    for other in others {
        let (shared, message) = (Arc::clone(shared), message.clone());
        asking.spawn(async move {
            let limit = shared.timing.call();
            let reply = timeout(limit, call(&shared, other, &message)).await;
            let yes = matches!(reply, Ok(Ok(Reply::Asked { yes: true } | Reply::Heard)));
            yes.then_some(other)
        });
    }
    let mut said_yes = BTreeSet::new();
    while let Some(answer) = asking.join_next().await {
        said_yes.extend(answer.ok().flatten());
    }
    said_yes
}

impl Link {
    /// Calls like [`call`], and pauses after an error, as the library tries again at once.
    async fn call(&self, message: &Message) -> Result<Reply> {
        let reply = call(&self.shared, self.target, message).await;
        if reply.is_err() {
            sleep(PAUSE).await;
        }
        reply
    }

    async fn append(&self, rpc: AppendEntriesRequest<Types>) -> Result<AppendOutcome> {
        let shared = &self.shared;
        if shared.contact.is_deaf() {
            // Nobody may take this for the sign of a leader that works.
            sleep(shared.timing.look()).await;
            return Err(Error::Unavailable("no majority answers this leader".into()));
        }
        let next = rpc.prev_log_id.map_or(0, |id| id.index + 1);
        let fails = shared.transfers.fails(self.target, next);
        let message = Message::Append {
            vote: vote_of(&rpc.vote),
            before: rpc.prev_log_id.map(id_of),
            committed: rpc.leader_commit.map(id_of),
            entries: rpc.entries.into_iter().map(entry_of).collect::<Vec<Entry>>(),
        };
        match self.call(&message).await {
            Ok(Reply::Appended(AppendOutcome::All | AppendOutcome::UpTo(_))) if fails => {
                let target = self.target;
                let text = format!("entries from {next} on for member {target} begin anew");
                Err(Error::Unavailable(text))
            }
            Ok(Reply::Appended(appended)) => Ok(appended),
            Ok(other) => Err(unexpected(&other)),
            Err(_) if is_planted(Bug::CommitBeforeMajority) => Ok(AppendOutcome::All),
            Err(error) => Err(error),
        }
    }

    async fn vote(&self, rpc: &VoteRequest<u64>) -> Result<VoteResponse<u64>> {
        let last = rpc.last_log_id.map(id_of);
        match self.call(&Message::Vote { vote: vote_of(&rpc.vote), last }).await? {
            Reply::Voted { last, .. } if is_planted(Bug::SeenVoteGranted) => {
                Ok(VoteResponse::new(rpc.vote, last.map(log_id), true))
            }
            Reply::Voted { vote, granted, last } => {
                Ok(VoteResponse::new(library_vote(vote), last.map(log_id), granted))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Sends all parts of a snapshot, one after another; returns the vote of its receiver.
    async fn send_snapshot(&self, vote: &openraft::Vote<u64>, rows: Rows) -> Result<Reply> {
        let Rows::Sent(mut outgoing) = rows else {
            return Err(Error::Invalid("a snapshot of another member".into()));
        };
        let vote = vote_of(vote);
        let transfer = self.shared.seams.rng.next_u64();
        let taken = outgoing.taken.clone();
        let begun = self.section(&Message::Begin { vote, transfer, taken }).await?;
        if begun != Reply::Heard {
            return Ok(begun);
        }
        for number in 0.. {
            let (rest, page) = self.next_page(outgoing).await?;
            outgoing = rest;
            let Some(page) = page else {
                let end = Message::End { vote, transfer, pages: number };
                return self.section(&end).await;
            };
            let rows = page.into_iter().map(|(key, row)| (key, Some(row))).collect();
            self.section(&Message::Page { transfer, number, rows }).await?;
            self.shared.transfers.count_page(self.target);
        }
        Err(Error::TooLarge("a snapshot without an end".into()))
    }

    async fn next_page(&self, mut outgoing: Outgoing) -> Result<(Outgoing, Option<Page>)> {
        let read = move |_: &super::store::MemberStore| {
            let page = outgoing.page()?;
            Ok((outgoing, page))
        };
        self.shared.with_store(read).await
    }

    async fn section(&self, message: &Message) -> Result<Reply> {
        let late = || Error::Unavailable("no answer to a part of a snapshot".into());
        timeout(SECTION_PATIENCE, call(&self.shared, self.target, message))
            .await
            .map_err(|_| late())?
    }
}

type Page = Vec<(Bytes, Bytes)>;

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, CallError> {
        let appended = self.append(rpc).await.map_err(failed)?;
        Ok(match appended {
            AppendOutcome::All => AppendEntriesResponse::Success,
            AppendOutcome::UpTo(id) => AppendEntriesResponse::PartialSuccess(id.map(log_id)),
            AppendOutcome::Conflict => AppendEntriesResponse::Conflict,
            AppendOutcome::HigherVote(vote) => {
                AppendEntriesResponse::HigherVote(library_vote(vote))
            }
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, CallError> {
        Link::vote(self, &rpc).await.map_err(failed)
    }

    async fn full_snapshot(
        &mut self,
        vote: openraft::Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let sent = tokio::select! {
            biased;
            closed = cancel => return Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(&vote, *snapshot.snapshot) => sent,
        };
        match sent {
            Ok(Reply::Installed { vote }) => Ok(SnapshotResponse::new(library_vote(vote))),
            Ok(other) => Err(StreamingError::Network(NetworkError::new(&unexpected(&other)))),
            Err(error) => {
                sleep(PAUSE).await;
                Err(StreamingError::Network(NetworkError::new(&error)))
            }
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Invalid(format!("an answer to something else: {reply:?}"))
}

/// Converts an error. Never `Unreachable`: after that, the library waits in a way that draws random
/// numbers.
fn failed(error: Error) -> CallError {
    RPCError::Network(NetworkError::new(&error))
}
