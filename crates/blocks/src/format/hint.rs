//! Hint files: the contents of a sealed segment, so that a start need not read the segment.

use cairn_base::checksum::crc32c;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::{BlockId, BodyId, GroupId, Owner};

use super::record::{self, Tombstone};
use super::{ALIGN, Key, checked, seal, take, take_u8, take_u32, take_u64};

const MAGIC: [u8; 8] = *b"CairnHnt";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 64;

/// A record of a segment, as far as the index needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HintEntry {
    Block(BlockEntry),
    Tombstone(Tombstone),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockEntry {
    pub key: Key,
    pub owner: Owner,
    /// The record's offset, in units of [`ALIGN`].
    pub position: u32,
    /// Lengths of the data: unpacked, and as they are in the record.
    pub length: u32,
    pub stored: u32,
    pub sequence: u64,
}

impl BlockEntry {
    pub(crate) fn footprint(&self) -> u64 {
        record::footprint(self.stored)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hint {
    pub segment: u32,
    pub salt: u64,
    /// The offset after the last record.
    pub end: u64,
    pub entries: Vec<HintEntry>,
}

impl Hint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        self.entries.iter().for_each(|entry| encode_entry(entry, &mut body));
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        out.extend_from_slice(&crc32c(&body).to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        seal(&mut out);
        out.extend_from_slice(&body);
        out
    }

    /// Decodes a hint. Returns `None` if anything about it is wrong: the segment is read instead.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Hint> {
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let rest = &mut checked(header)?;
        if take(rest)? != MAGIC || take_u32(rest)? != VERSION {
            return None;
        }
        let segment = take_u32(rest)?;
        let salt = take_u64(rest)?;
        let end = take_u64(rest)?;
        let count = take_u64(rest)?;
        let (chunks, tail) = body.as_chunks::<ENTRY_BYTES>();
        if !tail.is_empty() || chunks.len() as u64 != count || crc32c(body) != take_u32(rest)? {
            return None;
        }
        let entries = chunks.iter().map(|chunk| decode_entry(chunk, end)).collect::<Option<_>>()?;
        Some(Hint { segment, salt, end, entries })
    }
}

fn encode_entry(entry: &HintEntry, out: &mut Vec<u8>) {
    let start = out.len();
    let (kind, key, owner, place, lengths, sequence) = match *entry {
        HintEntry::Block(e) => {
            let stored = if e.stored == e.length { 0 } else { e.stored };
            (1u32, e.key, e.owner, e.position, (e.length, stored), e.sequence)
        }
        HintEntry::Tombstone(t) => (2, t.key, Owner::default(), t.segment, (0, 0), t.sequence),
    };
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&key.group.0.to_le_bytes());
    out.extend_from_slice(&key.block.to_bytes());
    out.extend_from_slice(&owner.body.to_bytes());
    out.extend_from_slice(&owner.chunk.to_le_bytes());
    out.extend_from_slice(&place.to_le_bytes());
    out.extend_from_slice(&lengths.0.to_le_bytes());
    out.extend_from_slice(&lengths.1.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    assert_eq!(out.len() - start, ENTRY_BYTES);
}

fn decode_entry(bytes: &[u8; ENTRY_BYTES], end: u64) -> Option<HintEntry> {
    let rest = &mut &bytes[..];
    let kind = take_u8(rest)?;
    take::<3>(rest)?;
    let group = GroupId(take_u32(rest)?);
    let key = Key { group, block: BlockId::from_bytes(take(rest)?) };
    let owner = Owner { body: BodyId::from_bytes(take(rest)?), chunk: take_u32(rest)? };
    let place = take_u32(rest)?;
    let length = take_u32(rest)?;
    let stored = Some(take_u32(rest)?).filter(|stored| *stored != 0).unwrap_or(length);
    let sequence = take_u64(rest)?;
    match kind {
        1 => {
            let entry = BlockEntry { key, owner, position: place, length, stored, sequence };
            let sized = (1..=BLOCK_BYTES).contains(&(length as usize)) && stored <= length;
            let inside = u64::from(place) * ALIGN + entry.footprint() <= end;
            (sized && inside).then_some(HintEntry::Block(entry))
        }
        2 => Some(HintEntry::Tombstone(Tombstone { key, segment: place, sequence })),
        _ => None,
    }
}
