//! Messages between members, and their bytes. Nothing here panics or allocates more than its
//! input, on any bytes. See docs/format-members.md.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::super::{Change, Fence, changes};
use super::digest::{RowDigests, TableDigest};
use super::entry::{Entry, EntryId, Members, parse_entries};
use super::member_record::Membership;
use super::outgoing::SnapshotState;
use super::record::{VOTE_BYTES, Vote};
use crate::rest::Rest;

pub const VERSION: u16 = 1;
/// Longest message, bytes. The longest has one batch, which fits into a file of the log.
pub const MESSAGE_BYTES: usize = 20 << 20;
/// Longest message with a part of a snapshot, bytes.
pub const SECTION_BYTES: usize = 4 << 20;
/// Bytes of the reason for which a message was refused.
const REASON_BYTES: usize = 1 << 10;

/// The sender and receiver of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Generation of the sender; messages of another generation are refused.
    pub generation: u64,
    pub from: u64,
    pub to: u64,
}

/// A request of one member to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Sends a leader's entries, or none, to be put after the entry `before`.
    Append { vote: Vote, before: Option<EntryId>, committed: Option<EntryId>, entries: Vec<Entry> },
    /// Asks for a vote, for a candidate whose log ends at `last`.
    Vote { vote: Vote, last: Option<EntryId> },
    /// Asks whether the receiver would vote for a log that ends at `last`, and whether its leader
    /// is silent too.
    Ask { last: Option<EntryId> },
    /// Asks whether the receiver hears the sender.
    Probe,
    /// Asks, as the leader with this vote, whether the receiver would take over the lead. If it
    /// `begins`, the receiver must start an election as soon as the others may vote; the leader's
    /// log ends at `last`, and it is silent.
    HandOver { vote: Vote, last: Option<EntryId>, begins: bool },
    /// Announces a snapshot.
    Begin { vote: Vote, transfer: u64, taken: SnapshotState },
    /// Sends rows of a snapshot in their order: the page `number`, counted from 0.
    Page { transfer: u64, number: u64, rows: Vec<Change> },
    /// Reports that all pages were sent.
    End { vote: Vote, transfer: u64, pages: u64 },
    /// Announces that rows are compared as of the next empty entry.
    Compare,
    /// Asks for the digests of the receiver's rows.
    Digests,
}

/// The answer to a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Appended(AppendOutcome),
    Voted {
        vote: Vote,
        granted: bool,
        last: Option<EntryId>,
    },
    Asked {
        yes: bool,
    },
    /// Answer to a probe, to a part of a snapshot, and to the begin of a comparison.
    Heard,
    /// The digests of the last comparison; `None` while there are none.
    Digests(Option<RowDigests>),
    /// The snapshot was installed, or the vote is of a newer leader.
    Installed {
        vote: Vote,
    },
    /// Nothing was done: the sender is of an older generation than the receiver.
    Superseded {
        generation: u64,
    },
    Refused {
        reason: String,
    },
}

/// The outcome of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOutcome {
    All,
    /// Entries were added up to this one.
    UpTo(Option<EntryId>),
    /// The entry before them differs, or is missing.
    Conflict,
    HigherVote(Vote),
}

/// Encodes a message.
///
/// # Errors
/// `TooLarge`.
pub fn encode(envelope: Envelope, message: &Message) -> Result<Bytes> {
    let mut out = Vec::new();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&message.kind().to_le_bytes());
    put_numbers(&mut out, &[envelope.generation, envelope.from, envelope.to]);
    match message {
        Message::Append { vote, before, committed, entries } => {
            vote.encode(&mut out);
            put_id(&mut out, *before);
            put_id(&mut out, *committed);
            put_numbers(&mut out, &[entries.first().map_or(0, |entry| entry.id.index)]);
            put_count(&mut out, entries.len())?;
            entries.iter().try_for_each(|entry| entry.encode(&mut out))?;
        }
        Message::Vote { vote, last } => {
            vote.encode(&mut out);
            put_id(&mut out, *last);
        }
        Message::Ask { last } => put_id(&mut out, *last),
        Message::Probe | Message::Compare | Message::Digests => {}
        Message::HandOver { vote, last, begins } => {
            vote.encode(&mut out);
            put_id(&mut out, *last);
            out.push(u8::from(*begins));
        }
        Message::Begin { vote, transfer, taken } => {
            vote.encode(&mut out);
            put_numbers(&mut out, &[*transfer]);
            put_taken(&mut out, taken)?;
        }
        Message::Page { transfer, number, rows } => {
            put_numbers(&mut out, &[*transfer, *number]);
            put_count(&mut out, rows.len())?;
            changes::encode(rows, &mut out)?;
        }
        Message::End { vote, transfer, pages } => {
            vote.encode(&mut out);
            put_numbers(&mut out, &[*transfer, *pages]);
        }
    }
    let limit = message.limit();
    if out.len() > limit {
        return Err(Error::TooLarge(format!("a message of {} bytes, over {limit}", out.len())));
    }
    Ok(out.into())
}

/// Parses a message.
///
/// # Errors
/// `Invalid` for an unknown version or kind, and for bytes that are no message.
pub fn parse(bytes: &Bytes) -> Result<(Envelope, Message)> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(Error::TooLarge(format!("a message of {} bytes", bytes.len())));
    }
    let mut rest = Rest(bytes);
    let kind = take_head(&mut rest)?;
    let cut_short = || Error::Invalid(format!("a message of kind {kind} that is not well-formed"));
    let envelope = take_envelope(&mut rest).ok_or_else(cut_short)?;
    let body = bytes.slice_ref(rest.0);
    let message = match kind {
        1 => parse_append(body)?,
        6 => parse_page(body)?,
        _ => parse_short(kind, rest),
    };
    Ok((envelope, message.ok_or_else(cut_short)?))
}

/// Encodes an answer. It has no envelope, as it belongs to one message.
pub fn encode_reply(reply: &Reply) -> Bytes {
    let mut out = VERSION.to_le_bytes().to_vec();
    let (kind, code): (u16, u8) = match reply {
        Reply::Appended(AppendOutcome::All) => (101, 0),
        Reply::Appended(AppendOutcome::UpTo(_)) => (101, 1),
        Reply::Appended(AppendOutcome::Conflict) => (101, 2),
        Reply::Appended(AppendOutcome::HigherVote(_)) => (101, 3),
        Reply::Voted { granted, .. } => (102, u8::from(*granted)),
        Reply::Asked { yes } => (103, u8::from(*yes)),
        Reply::Heard => (104, 0),
        Reply::Installed { .. } => (105, 0),
        Reply::Digests(digests) => (106, u8::from(digests.is_some())),
        Reply::Superseded { .. } => (254, 0),
        Reply::Refused { .. } => (255, 0),
    };
    out.extend_from_slice(&kind.to_le_bytes());
    out.push(code);
    match reply {
        Reply::Appended(AppendOutcome::All | AppendOutcome::Conflict) => {}
        Reply::Appended(AppendOutcome::UpTo(id)) => put_id(&mut out, *id),
        Reply::Appended(AppendOutcome::HigherVote(vote)) => vote.encode(&mut out),
        Reply::Voted { vote, last, .. } => {
            vote.encode(&mut out);
            put_id(&mut out, *last);
        }
        Reply::Asked { .. } | Reply::Heard | Reply::Digests(None) => {}
        Reply::Digests(Some(digests)) => put_digests(&mut out, digests),
        Reply::Installed { vote } => vote.encode(&mut out),
        Reply::Superseded { generation } => put_numbers(&mut out, &[*generation]),
        Reply::Refused { reason } => {
            out.extend(reason.bytes().take(REASON_BYTES));
        }
    }
    out.into()
}

/// Parses an answer.
///
/// # Errors
/// `Invalid`; `Unavailable` with the reason if the message was refused.
pub fn parse_reply(bytes: &[u8]) -> Result<Reply> {
    let mut rest = Rest(bytes);
    let kind = take_head(&mut rest)?;
    if kind == 255 {
        let reason = rest.0.get(1..).unwrap_or_default();
        let reason = reason.get(..REASON_BYTES).unwrap_or(reason);
        return Err(Error::Unavailable(String::from_utf8_lossy(reason).into_owned()));
    }
    let bad = || Error::Invalid(format!("an answer of kind {kind} that is not well-formed"));
    parse_known_reply(kind, rest).ok_or_else(bad)
}

impl Message {
    fn kind(&self) -> u16 {
        match self {
            Message::Append { .. } => 1,
            Message::Vote { .. } => 2,
            Message::Ask { .. } => 3,
            Message::Probe => 4,
            Message::Begin { .. } => 5,
            Message::Page { .. } => 6,
            Message::End { .. } => 7,
            Message::HandOver { .. } => 8,
            Message::Compare => 9,
            Message::Digests => 10,
        }
    }

    fn limit(&self) -> usize {
        match self {
            Message::Begin { .. } | Message::Page { .. } | Message::End { .. } => SECTION_BYTES,
            _ => MESSAGE_BYTES,
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_count(out: &mut Vec<u8>, count: usize) -> Result<()> {
    let count = u32::try_from(count).map_err(|_| Error::TooLarge("a list in a message".into()))?;
    out.extend_from_slice(&count.to_le_bytes());
    Ok(())
}

fn put_id(out: &mut Vec<u8>, id: Option<EntryId>) {
    out.push(u8::from(id.is_some()));
    let EntryId { term, index } = id.unwrap_or(EntryId { term: 0, index: 0 });
    put_numbers(out, &[term, index]);
}

fn put_digests(out: &mut Vec<u8>, digests: &RowDigests) {
    put_id(out, Some(digests.entry));
    // One for each byte at most.
    out.extend_from_slice(&(digests.tables.len() as u16).to_le_bytes());
    for (table, TableDigest { rows, sum }) in &digests.tables {
        out.push(*table);
        put_numbers(out, &[*rows, *sum]);
    }
}

fn put_taken(out: &mut Vec<u8>, taken: &SnapshotState) -> Result<()> {
    let SnapshotState { applied, fence, given_up, membership } = taken;
    put_id(out, Some(*applied));
    put_numbers(out, &[fence.epoch, fence.batch]);
    out.push(u8::from(*given_up));
    put_id(out, membership.entry);
    membership.members.encode(out)
}

fn take_head(rest: &mut Rest<'_>) -> Result<u16> {
    let version = rest.take().map(u16::from_le_bytes);
    let kind = rest.take().map(u16::from_le_bytes);
    match (version, kind) {
        (Some(VERSION), Some(kind)) => Ok(kind),
        (Some(version), Some(_)) => Err(Error::Invalid(format!(
            "a message between masters of version {version}; this one knows {VERSION}"
        ))),
        _ => Err(Error::Invalid("a message between masters that is cut short".into())),
    }
}

fn take_envelope(rest: &mut Rest<'_>) -> Option<Envelope> {
    Some(Envelope { generation: rest.u64()?, from: rest.u64()?, to: rest.u64()? })
}

fn take_vote(rest: &mut Rest<'_>) -> Option<Vote> {
    Vote::parse(&rest.take::<VOTE_BYTES>()?)
}

fn take_flag(rest: &mut Rest<'_>) -> Option<bool> {
    match rest.take()? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn take_id(rest: &mut Rest<'_>) -> Option<Option<EntryId>> {
    let is_some = take_flag(rest)?;
    let id = EntryId { term: rest.u64()?, index: rest.u64()? };
    Some(is_some.then_some(id))
}

/// Digests by the first byte of keys, each byte once, in their order.
fn take_digests(rest: &mut Rest<'_>) -> Option<RowDigests> {
    let entry = take_id(rest)??;
    let mut tables = BTreeMap::new();
    for _ in 0..u16::from_le_bytes(rest.take()?) {
        let [table] = rest.take()?;
        let follows = tables.last_key_value().is_none_or(|(last, _)| *last < table);
        let digest = TableDigest { rows: rest.u64()?, sum: rest.u64()? };
        follows.then(|| tables.insert(table, digest))?;
    }
    Some(RowDigests { entry, tables })
}

fn take_taken(rest: &mut Rest<'_>) -> Option<SnapshotState> {
    let applied = take_id(rest)??;
    let fence = Fence { epoch: rest.u64()?, batch: rest.u64()? };
    let given_up = take_flag(rest)?;
    let entry = take_id(rest)?;
    let members = Members::parse(std::mem::take(&mut rest.0))?;
    Some(SnapshotState { applied, fence, given_up, membership: Membership { entry, members } })
}

fn parse_append(body: Bytes) -> Result<Option<Message>> {
    let mut rest = Rest(&body);
    let fields = (|| {
        let (vote, before, committed) =
            (take_vote(&mut rest)?, take_id(&mut rest)?, take_id(&mut rest)?);
        Some((vote, before, committed, rest.u64()?, rest.u32()?))
    })();
    let Some((vote, before, committed, first, count)) = fields else { return Ok(None) };
    let entries = parse_entries(first, count, &body.slice_ref(rest.0))?;
    let next = before.map_or(0, |id| id.index.saturating_add(1));
    if !entries.is_empty() && first != next {
        return Ok(None);
    }
    Ok(Some(Message::Append { vote, before, committed, entries }))
}

fn parse_page(body: Bytes) -> Result<Option<Message>> {
    let mut rest = Rest(&body);
    let fields = (|| Some((rest.u64()?, rest.u64()?, rest.u32()?)))();
    let Some((transfer, number, count)) = fields else { return Ok(None) };
    let rows = changes::parse(count, &body.slice_ref(rest.0));
    let rows = rows.map_err(|got| Error::Invalid(format!("a page of a snapshot with {got}")))?;
    Ok(Some(Message::Page { transfer, number, rows }))
}

fn parse_short(kind: u16, mut rest: Rest<'_>) -> Option<Message> {
    let rest = &mut rest;
    let message = match kind {
        2 => Message::Vote { vote: take_vote(rest)?, last: take_id(rest)? },
        3 => Message::Ask { last: take_id(rest)? },
        4 => Message::Probe,
        9 => Message::Compare,
        10 => Message::Digests,
        5 => {
            let (vote, transfer) = (take_vote(rest)?, rest.u64()?);
            Message::Begin { vote, transfer, taken: take_taken(rest)? }
        }
        7 => Message::End { vote: take_vote(rest)?, transfer: rest.u64()?, pages: rest.u64()? },
        8 => {
            let (vote, last) = (take_vote(rest)?, take_id(rest)?);
            Message::HandOver { vote, last, begins: take_flag(rest)? }
        }
        _ => return None,
    };
    rest.0.is_empty().then_some(message)
}

fn parse_known_reply(kind: u16, mut rest: Rest<'_>) -> Option<Reply> {
    let rest = &mut rest;
    let [code] = rest.take()?;
    let reply = match (kind, code) {
        (101, 0) => Reply::Appended(AppendOutcome::All),
        (101, 1) => Reply::Appended(AppendOutcome::UpTo(take_id(rest)?)),
        (101, 2) => Reply::Appended(AppendOutcome::Conflict),
        (101, 3) => Reply::Appended(AppendOutcome::HigherVote(take_vote(rest)?)),
        (102, 0 | 1) => {
            Reply::Voted { vote: take_vote(rest)?, granted: code == 1, last: take_id(rest)? }
        }
        (103, 0 | 1) => Reply::Asked { yes: code == 1 },
        (104, 0) => Reply::Heard,
        (105, 0) => Reply::Installed { vote: take_vote(rest)? },
        (106, 0) => Reply::Digests(None),
        (106, 1) => Reply::Digests(Some(take_digests(rest)?)),
        (254, 0) => Reply::Superseded { generation: rest.u64()? },
        _ => return None,
    };
    rest.0.is_empty().then_some(reply)
}
