//! Entries of the replicated log, and their bytes in records and messages. Nothing here panics or
//! allocates more than its input, on any bytes. See docs/format-engine.md.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeSet;

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::super::ring::header::too_large;
use super::super::row_store::Pending;
use super::super::{Change, Fence, changes};
use crate::rest::Rest;

/// Bytes of an entry's head: term, kind, 0, length.
const HEAD_BYTES: usize = 16;

/// The index of an entry in the log, and the term of the leader that proposed it. Of two logs, the
/// log with the greater last id is more complete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EntryId {
    pub term: u64,
    pub index: u64,
}

/// One entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub id: EntryId,
    pub proposal: Proposal,
}

/// A leader's proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proposal {
    /// Nothing; a leader begins its term with it.
    Empty,
    /// Changed rows, for the master whose fence is `expected`.
    Batch {
        expected: Fence,
        changes: Vec<Change>,
    },
    /// A master begins. The batch number becomes at least `batch`.
    TakeOver {
        batch: u64,
    },
    Members(Members),
    /// The master that took over with this epoch has given its last answer.
    GivenUp {
        epoch: u64,
    },
}

/// The members of the group that keeps the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// A majority of each set decides. Two sets: one follows the other.
    pub voters: Vec<BTreeSet<u64>>,
    pub learners: BTreeSet<u64>,
}

impl Entry {
    /// Returns the number of bytes that [`Entry::encode`] appends.
    pub fn encoded_bytes(&self) -> usize {
        HEAD_BYTES
            + match &self.proposal {
                Proposal::Empty => 0,
                Proposal::Batch { changes, .. } => 20 + changes::encoded_bytes(changes),
                Proposal::TakeOver { .. } | Proposal::GivenUp { .. } => 8,
                Proposal::Members(members) => members.encoded_bytes(),
            }
    }

    /// Appends the entry, without its index.
    ///
    /// # Errors
    /// `TooLarge` for a part that does not fit its field.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let length = self.encoded_bytes() - HEAD_BYTES;
        let length = u32::try_from(length).map_err(|_| too_large("an entry", length))?;
        let kind: u16 = match &self.proposal {
            Proposal::Empty => 0,
            Proposal::Batch { .. } => 1,
            Proposal::TakeOver { .. } => 2,
            Proposal::Members(_) => 3,
            Proposal::GivenUp { .. } => 4,
        };
        out.extend_from_slice(&self.id.term.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&length.to_le_bytes());
        match &self.proposal {
            Proposal::Empty => {}
            Proposal::Batch { expected, changes } => {
                let rows = changes.len();
                let rows = u32::try_from(rows).map_err(|_| too_large("a batch", rows))?;
                out.extend_from_slice(&expected.epoch.to_le_bytes());
                out.extend_from_slice(&expected.batch.to_le_bytes());
                out.extend_from_slice(&rows.to_le_bytes());
                changes::encode(changes, out)?;
            }
            Proposal::TakeOver { batch: number } | Proposal::GivenUp { epoch: number } => {
                out.extend_from_slice(&number.to_le_bytes());
            }
            Proposal::Members(members) => members.encode(out)?,
        }
        Ok(())
    }
}

/// Encodes entries to be stored beside the rows, each with its index.
///
/// # Errors
/// `TooLarge`.
pub fn encode_pending<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Pending> {
    let encode = |entry: &Entry| {
        let mut bytes = Vec::with_capacity(entry.encoded_bytes());
        entry.encode(&mut bytes)?;
        Ok((entry.id.index, bytes))
    };
    entries.into_iter().map(encode).collect()
}

/// Parses the `count` entries in `body`, the first of which has the index `first`. Their values
/// share the memory of `body`.
///
/// # Errors
/// `Corrupt` if it is not exactly `count` well-formed entries; `Invalid` for an unknown kind of
/// entry.
pub fn parse_entries(first: u64, count: u32, body: &Bytes) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity((count as usize).min(body.len() / HEAD_BYTES));
    let mut rest = body.clone();
    for number in 0..u64::from(count) {
        let index = first.checked_add(number).ok_or_else(|| bad(first, "too many"))?;
        let (term, kind, body) =
            take_entry(&mut rest).ok_or_else(|| bad(index, "an entry that is cut short"))?;
        let proposal = parse_proposal(index, kind, body)?;
        entries.push(Entry { id: EntryId { term, index }, proposal });
    }
    if rest.is_empty() { Ok(entries) } else { Err(bad(first, "bytes after the last entry")) }
}

fn bad(index: u64, got: &str) -> Error {
    Error::corrupt(format!("entry {index} of the log"), got, "a well-formed entry")
}

fn take_entry(rest: &mut Bytes) -> Option<(u64, u16, Bytes)> {
    let mut head = Rest(rest);
    let term = head.u64()?;
    let kind = u16::from_le_bytes(head.take()?);
    let _zero: [u8; 2] = head.take()?;
    let length = usize::try_from(head.u32()?).ok()?;
    let _ = rest.split_to(HEAD_BYTES);
    (length <= rest.len()).then(|| (term, kind, rest.split_to(length)))
}

fn parse_proposal(index: u64, kind: u16, mut body: Bytes) -> Result<Proposal> {
    let cut_short = || bad(index, "fields that are cut short");
    match kind {
        0 if !body.is_empty() => Err(bad(index, "bytes after its end")),
        0 => Ok(Proposal::Empty),
        1 => {
            let mut fields = Rest(&body);
            let epoch = fields.u64().ok_or_else(cut_short)?;
            let batch = fields.u64().ok_or_else(cut_short)?;
            let rows = fields.u32().ok_or_else(cut_short)?;
            let changes = changes::parse(rows, &body.split_off(20));
            let changes = changes.map_err(|got| bad(index, got))?;
            Ok(Proposal::Batch { expected: Fence { epoch, batch }, changes })
        }
        2 | 4 => match (<[u8; 8]>::try_from(&*body).map(u64::from_le_bytes), kind) {
            (Ok(batch), 2) => Ok(Proposal::TakeOver { batch }),
            (Ok(epoch), _) => Ok(Proposal::GivenUp { epoch }),
            (Err(_), _) => Err(cut_short()),
        },
        3 => Ok(Proposal::Members(Members::parse(&body).ok_or_else(cut_short)?)),
        _ => Err(Error::Invalid(format!(
            "entry {index} of the log has kind {kind}, which this version of Cairn does not know: \
             run the newer one"
        ))),
    }
}

impl Members {
    /// Returns the number of bytes that [`Members::encode`] appends.
    pub fn encoded_bytes(&self) -> usize {
        let sets = self.voters.iter().chain([&self.learners]);
        1 + sets.map(|ids| 2 + 8 * ids.len()).sum::<usize>()
    }

    /// Appends the members.
    ///
    /// # Errors
    /// `TooLarge` for more sets or ids than the fields can count.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let sets = self.voters.len();
        out.push(u8::try_from(sets).map_err(|_| too_large("a list of members", sets))?);
        for ids in self.voters.iter().chain([&self.learners]) {
            let count = ids.len();
            let count = u16::try_from(count).map_err(|_| too_large("a set of members", count))?;
            out.extend_from_slice(&count.to_le_bytes());
            ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        }
        Ok(())
    }

    /// Parses members; `None` for bytes that are not exactly one encoding.
    pub fn parse(bytes: &[u8]) -> Option<Members> {
        let mut rest = Rest(bytes);
        let members = Members::take(&mut rest)?;
        rest.0.is_empty().then_some(members)
    }

    /// Reads the members at the front of `rest`.
    pub(super) fn take(rest: &mut Rest<'_>) -> Option<Members> {
        let [sets] = rest.take()?;
        let mut take_ids = || {
            let count = u16::from_le_bytes(rest.take()?);
            (0..count).map(|_| rest.u64()).collect::<Option<BTreeSet<u64>>>()
        };
        let voters = (0..sets).map(|_| take_ids()).collect::<Option<Vec<_>>>()?;
        let learners = take_ids()?;
        Some(Members { voters, learners })
    }
}
