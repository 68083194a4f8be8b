//! The fields that only a member's mark has. See docs/format-engine.md.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::entry::{EntryId, Members};
use super::record::{VOTE_BYTES, Vote};
use crate::rest::Rest;

/// The members as of the last applied entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// Entry that set them; `None` before the first.
    pub entry: Option<EntryId>,
    pub members: Members,
}

/// The state of a member as of the last applied entry, and its current vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    /// Id under which this member votes.
    pub member: u64,
    /// Generation of the metadata; messages of another generation are refused.
    pub generation: u64,
    pub vote: Vote,
    /// Last applied entry.
    pub applied: Option<EntryId>,
    pub membership: Membership,
    /// Set if the latest master has given up.
    pub given_up: bool,
    /// First valid record: a snapshot replaced the content of the records before.
    pub first_record: u64,
    /// Generation that has begun without this member, which no longer takes part; 0 for none.
    pub superseded: u64,
}

impl MemberRecord {
    /// State of a new member.
    pub fn new(member: u64) -> MemberRecord {
        MemberRecord {
            member,
            generation: 0,
            vote: Vote::default(),
            applied: None,
            membership: Membership::default(),
            given_up: false,
            first_record: 0,
            superseded: 0,
        }
    }

    /// Returns the index after the last applied entry.
    pub fn next(&self) -> u64 {
        self.applied.map_or(0, |id| id.index + 1)
    }

    /// Encodes the state.
    ///
    /// # Errors
    /// `TooLarge` for more members than there can be.
    pub fn encode(&self) -> Result<Bytes> {
        let mut out = Vec::new();
        for number in [self.member, self.generation, self.first_record] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.vote.encode(&mut out);
        out.push(u8::from(self.given_up));
        for id in [self.applied, self.membership.entry] {
            out.push(u8::from(id.is_some()));
            let EntryId { term, index } = id.unwrap_or(EntryId { term: 0, index: 0 });
            out.extend_from_slice(&term.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
        }
        self.membership.members.encode(&mut out)?;
        if self.superseded > 0 {
            // Programs that do not know this field do not open files that have it.
            out.extend_from_slice(&self.superseded.to_le_bytes());
        }
        Ok(out.into())
    }

    /// Parses the state.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(bytes: &[u8]) -> Result<MemberRecord> {
        parse(bytes).ok_or_else(|| {
            Error::corrupt("mark of a member", "bytes that do not check", "a well-formed mark")
        })
    }
}

fn parse(bytes: &[u8]) -> Option<MemberRecord> {
    let mut rest = Rest(bytes);
    let (member, generation, first_record) = (rest.u64()?, rest.u64()?, rest.u64()?);
    let vote = Vote::parse(&rest.take::<VOTE_BYTES>()?)?;
    let given_up = rest.flag()?;
    let applied = rest.entry_id()?;
    let entry = rest.entry_id()?;
    let membership = Membership { entry, members: Members::take(&mut rest)? };
    let superseded = if rest.0.is_empty() { 0 } else { rest.u64().filter(|number| *number > 0)? };
    let held = MemberRecord {
        member,
        generation,
        vote,
        applied,
        membership,
        given_up,
        first_record,
        superseded,
    };
    rest.0.is_empty().then_some(held)
}

impl Rest<'_> {
    fn flag(&mut self) -> Option<bool> {
        match self.take()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn entry_id(&mut self) -> Option<Option<EntryId>> {
        let is_some = self.flag()?;
        let id = EntryId { term: self.u64()?, index: self.u64()? };
        Some(is_some.then_some(id))
    }
}
