//! Scrubs that are ordered over the network: requests to a chunkserver, and its answers.

use bytes::{BufMut, Bytes, BytesMut};
use cairn_base::codec::{Fields, Writer};
use cairn_base::scrub::{NodeScrub, RunOrder, ScrubPhase};
use cairn_base::{BlockId, BodyId, Error, GroupId, Owner, Result};

/// Damaged blocks of a scrub that a chunkserver lists, at most. Beyond that it gives only the
/// number.
pub const FOUND: usize = 10_000;

/// A block that failed verification in a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundBlock {
    pub group: GroupId,
    pub block: BlockId,
    pub owner: Owner,
    /// Set if it was replaced by another member's replica, or deleted since.
    pub is_repaired: bool,
}

/// Scrubs of a chunkserver, which run apart from its answers. The caller that orders a scrub
/// chooses its number; 0 stands for the scrub that runs, or ended last.
pub trait OrderedScrubs: Send + Sync {
    /// Orders a scrub. The damaged segments in the result are left to the caller.
    fn order(&self, run: u64, order: RunOrder) -> NodeScrub;

    /// Returns at most [`FOUND`] blocks; if it returns as many, there may be more.
    ///
    /// # Errors
    /// `NotFound` if the scrub is not known here, or not any more.
    fn found(&self, run: u64) -> Result<Vec<FoundBlock>>;

    /// Notes that the repair of a block was tried.
    fn tried(&self, group: GroupId, block: BlockId, is_repaired: bool);
}

const FORMAT: u8 = 1;
const FOUND_ENTRY: usize = 41;
/// The longest answer of each kind, bytes.
pub(super) const SCRUB_BYTES: usize = 4 << 10;
pub(super) const FOUND_BYTES: usize = FOUND * FOUND_ENTRY;
/// The longest text of a failure that is sent, bytes.
const FAILURE_BYTES: usize = 1000;

pub(super) fn encode_scrub(scrub: &NodeScrub) -> Bytes {
    let end = scrub.failure.floor_char_boundary(FAILURE_BYTES);
    let mut out = Writer::new(FORMAT);
    out.number(1, scrub.phase.number().into())
        .number(2, scrub.blocks)
        .number(3, scrub.total_blocks)
        .number(4, scrub.bytes)
        .number(5, scrub.damaged)
        .number(6, scrub.repaired)
        .number(7, scrub.pending)
        .text(8, scrub.failure.get(..end).unwrap_or_default())
        .number(9, scrub.damaged_segments);
    out.finish()
}

pub(super) fn decode_scrub(row: &Bytes) -> Result<NodeScrub> {
    let mut scrub = NodeScrub::default();
    let mut fields = Fields::open(row, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        match field.tag {
            1 => scrub.phase = ScrubPhase::from_number(field.number()?),
            2 => scrub.blocks = field.number()?,
            3 => scrub.total_blocks = field.number()?,
            4 => scrub.bytes = field.number()?,
            5 => scrub.damaged = field.number()?,
            6 => scrub.repaired = field.number()?,
            7 => scrub.pending = field.number()?,
            8 => scrub.failure = field.text()?,
            9 => scrub.damaged_segments = field.number()?,
            _ => {}
        }
    }
    Ok(scrub)
}

pub(super) fn encode_found(found: &[FoundBlock]) -> Bytes {
    let mut out = BytesMut::with_capacity(found.len() * FOUND_ENTRY);
    for FoundBlock { group, block, owner, is_repaired } in found.iter().take(FOUND) {
        out.put_u32(group.0);
        out.put_slice(&block.to_bytes());
        out.put_slice(&owner.body.to_bytes());
        out.put_u32(owner.chunk);
        out.put_u8(u8::from(*is_repaired));
    }
    out.freeze()
}

/// Decodes the blocks that a scrub found.
///
/// # Errors
/// `Corrupt` if these are not whole entries.
pub(super) fn decode_found(bytes: &[u8]) -> Result<Vec<FoundBlock>> {
    let (entries, rest) = bytes.as_chunks::<FOUND_ENTRY>();
    if !rest.is_empty() {
        return Err(Error::corrupt("list of damaged blocks", "a part of an entry", "entries"));
    }
    let one = |entry: &[u8; FOUND_ENTRY]| {
        let (group, rest) = entry.split_first_chunk::<4>()?;
        let (block, rest) = rest.split_first_chunk::<16>()?;
        let (body, rest) = rest.split_first_chunk::<16>()?;
        let (chunk, rest) = rest.split_first_chunk::<4>()?;
        let body = BodyId::from_bytes(*body);
        Some(FoundBlock {
            group: GroupId(u32::from_be_bytes(*group)),
            block: BlockId::from_bytes(*block),
            owner: Owner { body, chunk: u32::from_be_bytes(*chunk) },
            is_repaired: rest == [1],
        })
    };
    Ok(entries.iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use cairn_base::SessionId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_chunkserver_says_reads_back() {
        for phase in ScrubPhase::ALL {
            let scrub = NodeScrub { phase, bytes: u64::MAX, pending: 3, ..NodeScrub::default() };
            let scrub = NodeScrub { failure: "a disk".into(), damaged_segments: 5, ..scrub };
            assert_eq!(decode_scrub(&encode_scrub(&scrub)).unwrap(), scrub);
        }
        let long = NodeScrub { failure: "é".repeat(9_000), ..NodeScrub::default() };
        assert!(encode_scrub(&long).len() <= SCRUB_BYTES);
    }

    #[test]
    fn found_blocks_read_back() {
        let id = |counter| BlockId { session: SessionId(7), counter };
        let body = BodyId { session: SessionId(9), counter: u64::MAX };
        let owner = Owner { body, chunk: 3 };
        let one = |counter: u64| FoundBlock {
            group: GroupId(u32::MAX),
            block: id(counter),
            owner,
            is_repaired: counter.is_multiple_of(2),
        };
        let found: Vec<FoundBlock> = (0..5).map(one).collect();
        let bytes = encode_found(&found);
        assert_eq!(decode_found(&bytes).unwrap(), found);
        assert!(decode_found(&bytes[..bytes.len() - 1]).is_err());
        let many: Vec<FoundBlock> = (0..FOUND as u64 + 5).map(one).collect();
        assert_eq!(encode_found(&many).len(), FOUND_BYTES);
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_chunkserver_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = (decode_found(&bytes), decode_scrub(&bytes.into()));
        }
    }
}
