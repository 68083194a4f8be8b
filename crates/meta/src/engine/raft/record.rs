//! The records of a member's log: entries, and votes. See docs/format-engine.md.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::super::ring::Ring;
use super::super::ring::header::{HEADER_BYTES, RawHeader, seal};
use super::entry::{Entry, parse_entries};
use crate::rest::Rest;

const VERSION: u16 = 2;
const ENTRIES: u16 = 4;
const VOTE: u16 = 5;
/// Bytes of a vote.
pub const VOTE_BYTES: usize = 17;

/// The member that a member voted for last, and the term.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vote {
    pub term: u64,
    /// Member that got the vote; 0 for none yet.
    pub member: u64,
    /// Set if a majority voted for it.
    pub committed: bool,
}

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// At least one entry. They replace all entries from the first one's index on.
    Entries(Vec<Entry>),
    Vote(Vote),
}

impl Vote {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.member.to_le_bytes());
        out.push(u8::from(self.committed));
    }

    /// Parses a vote; `None` for bytes that are not exactly one.
    pub fn parse(bytes: &[u8]) -> Option<Vote> {
        let mut rest = Rest(bytes);
        let (term, member) = (rest.u64()?, rest.u64()?);
        let committed = match rest.take()? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        rest.0.is_empty().then_some(Vote { term, member, committed })
    }
}

/// Returns the bytes of a record of `entries` without its padding.
pub fn record_bytes(entries: &[Entry]) -> usize {
    HEADER_BYTES + entries.iter().map(Entry::encoded_bytes).sum::<usize>()
}

/// Puts the record of `entries` into the ring's buffer.
///
/// # Errors
/// `TooLarge`.
pub fn encode_entries(ring: &mut Ring, entries: &[Entry]) -> Result<RawHeader> {
    let first = entries.first().map_or(0, |entry| entry.id.index);
    let header = begin(ring, ENTRIES, first, entries.len() as u32);
    for entry in entries {
        entry.encode(&mut ring.buffer)?;
    }
    seal(header, &mut ring.buffer)
}

/// Puts the record of `vote` into the ring's buffer.
///
/// # Errors
/// None: it is short.
pub fn encode_vote(ring: &mut Ring, vote: &Vote) -> Result<RawHeader> {
    let header = begin(ring, VOTE, 0, 0);
    vote.encode(&mut ring.buffer);
    seal(header, &mut ring.buffer)
}

fn begin(ring: &mut Ring, kind: u16, first: u64, count: u32) -> RawHeader {
    ring.buffer.clear();
    ring.buffer.resize(HEADER_BYTES, 0);
    RawHeader {
        version: VERSION,
        kind,
        log_id: ring.id,
        sequence: ring.sequence + 1,
        numbers: [first, 0],
        count,
        body_bytes: 0,
        body_crc: 0,
        previous: ring.previous,
        crc: 0,
    }
}

/// Checks that the record can be read here.
///
/// # Errors
/// `Invalid` for an unknown version or kind.
pub fn require_known(header: &RawHeader) -> Result<()> {
    match (header.version, header.kind) {
        (VERSION, ENTRIES | VOTE) => Ok(()),
        _ => Err(header.unknown()),
    }
}

/// Returns whether a record holds a vote.
pub fn is_vote(header: &RawHeader) -> bool {
    header.kind == VOTE
}

/// Parses the body of a record whose checksum was verified.
///
/// # Errors
/// `Corrupt` if it does not match the header; `Invalid` for an unknown kind.
pub fn parse(header: &RawHeader, body: &Bytes) -> Result<Record> {
    require_known(header)?;
    let bad = |got: &str| {
        let what = format!("record {} of the log", header.sequence);
        Error::corrupt(what, got, "a well-formed record")
    };
    if header.kind == VOTE {
        return Ok(Record::Vote(Vote::parse(body).ok_or_else(|| bad("no vote"))?));
    }
    let [first, _] = header.numbers;
    match parse_entries(first, header.count, body)? {
        entries if entries.is_empty() => Err(bad("no entries")),
        entries => Ok(Record::Entries(entries)),
    }
}
