//! Records: header, checksum table, data, padding to 512 bytes.

use cairn_base::checksum::crc32c;
use cairn_base::limits::{BLOCK_BYTES, SUB_BLOCK_BYTES};
use cairn_base::{BlockId, BodyId, GroupId, Owner};

use super::{ALIGN, Key, checked, seal, take, take_u8, take_u16, take_u32, take_u64};

const MAGIC: [u8; 4] = *b"CrnR";
const VERSION: u8 = 1;
const CODEC_PLAIN: u8 = 0;
/// Code of zstd; see [`super::frames`].
const CODEC_ZSTD: u8 = 1;
const CHECKSUM_CRC32C: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 144;
const RESERVED_BYTES: usize = 36;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Block,
    /// A record whose data are [`Tombstone`]s.
    Tombstones,
}

/// The place of a record. It is part of the record, so that a record found at another place is
/// refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordPlace {
    pub segment: u32,
    pub salt: u64,
    pub offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub kind: Kind,
    pub place: RecordPlace,
    pub key: Key,
    pub owner: Owner,
    /// Number that grows with every record of this disk. A copy made by compaction keeps it.
    pub sequence: u64,
    /// Offset below which the whole segment was durable when this record was begun.
    pub synced: u64,
    /// Bytes of data, unpacked.
    pub length: u32,
    /// Bytes of data in the record: fewer, if the block is compressed.
    pub stored: u32,
    pub table_crc: u32,
}

impl RecordHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Block => 1,
            Kind::Tombstones => 2,
        };
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        let codec = if self.stored == self.length { CODEC_PLAIN } else { CODEC_ZSTD };
        out.extend_from_slice(&[VERSION, kind, codec, CHECKSUM_CRC32C]);
        out.extend_from_slice(&self.place.salt.to_le_bytes());
        out.extend_from_slice(&self.place.segment.to_le_bytes());
        out.extend_from_slice(&self.key.group.0.to_le_bytes());
        out.extend_from_slice(&self.place.offset.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.synced.to_le_bytes());
        out.extend_from_slice(&self.key.block.to_bytes());
        out.extend_from_slice(&self.owner.body.to_bytes());
        out.extend_from_slice(&self.owner.chunk.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.table_crc.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&[0; RESERVED_BYTES]);
        out.resize(HEADER_BYTES - 4, 0);
        seal(&mut out);
        out
    }

    /// Decodes a header. Returns `None` if these bytes are not a header that this version wrote for
    /// a valid record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<RecordHeader> {
        if !bytes.starts_with(&MAGIC) {
            return None;
        }
        let rest = &mut checked(bytes.get(..HEADER_BYTES)?)?;
        take::<4>(rest)?;
        let version = take_u8(rest)?;
        let kind = match take_u8(rest)? {
            1 => Kind::Block,
            2 => Kind::Tombstones,
            _ => return None,
        };
        let compressed = match take_u8(rest)? {
            CODEC_PLAIN => false,
            CODEC_ZSTD if kind == Kind::Block => true,
            _ => return None,
        };
        let summed = take_u8(rest)? == CHECKSUM_CRC32C;
        let salt = take_u64(rest)?;
        let segment = take_u32(rest)?;
        let group = GroupId(take_u32(rest)?);
        let place = RecordPlace { segment, salt, offset: take_u64(rest)? };
        let sequence = take_u64(rest)?;
        let synced = take_u64(rest)?;
        let key = Key { group, block: BlockId::from_bytes(take(rest)?) };
        let owner = Owner { body: BodyId::from_bytes(take(rest)?), chunk: take_u32(rest)? };
        let stored = take_u32(rest)?;
        let length = take_u32(rest)?;
        let table_crc = take_u32(rest)?;
        let whole = take_u16(rest)? == 0 && take_u16(rest)? == 1;
        let reserved = rest.iter().all(|&byte| byte == 0);
        let shorter = if compressed { stored < length } else { stored == length };
        let sized = stored > 0 && shorter && length as usize <= BLOCK_BYTES;
        (version == VERSION && summed && whole && reserved && sized).then_some(RecordHeader {
            kind,
            place,
            key,
            owner,
            sequence,
            synced,
            length,
            stored,
            table_crc,
        })
    }

    /// Decodes a header as `decode` does, and checks that the record belongs at `place`.
    pub(crate) fn decode_at(bytes: &[u8], place: RecordPlace) -> Option<RecordHeader> {
        RecordHeader::decode(bytes).filter(|header| header.place == place)
    }

    pub(crate) fn footprint(&self) -> u64 {
        footprint(self.stored)
    }
}

/// Returns the bytes from the start of a record to its data, by their stored length.
pub(crate) fn data_offset(stored: u32) -> u64 {
    HEADER_BYTES as u64 + table_bytes(stored) as u64
}

pub(crate) fn table_bytes(stored: u32) -> usize {
    (stored as usize).div_ceil(SUB_BLOCK_BYTES) * 4
}

/// Returns the bytes of a whole record.
pub(crate) fn footprint(stored: u32) -> u64 {
    (data_offset(stored) + u64::from(stored)).next_multiple_of(ALIGN)
}

/// Returns the crc32c of each sub-block.
pub(crate) fn table(data: &[u8]) -> Vec<u8> {
    data.chunks(SUB_BLOCK_BYTES).flat_map(|piece| crc32c(piece).to_le_bytes()).collect()
}

/// Returns whether `data`, whole sub-blocks of a record from number `first` on, match `table`.
pub(crate) fn verify(table: &[u8], first: usize, data: &[u8]) -> bool {
    let (sums, _) = table.as_chunks::<4>();
    let Some(sums) = sums.get(first..) else { return false };
    data.len().div_ceil(SUB_BLOCK_BYTES) <= sums.len()
        && data
            .chunks(SUB_BLOCK_BYTES)
            .zip(sums)
            .all(|(piece, sum)| crc32c(piece) == u32::from_le_bytes(*sum))
}

/// The deletion of a block. It must last as long as the file of `segment`, which holds a record of
/// the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tombstone {
    pub key: Key,
    pub segment: u32,
    /// Sequence below which all records of the block are gone.
    pub sequence: u64,
}

pub(crate) const TOMBSTONE_BYTES: usize = 32;

impl Tombstone {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.group.0.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.key.block.to_bytes());
    }

    fn decode(bytes: &[u8; TOMBSTONE_BYTES]) -> Option<Tombstone> {
        let rest = &mut &bytes[..];
        let group = GroupId(take_u32(rest)?);
        let segment = take_u32(rest)?;
        let sequence = take_u64(rest)?;
        let key = Key { group, block: BlockId::from_bytes(take(rest)?) };
        Some(Tombstone { key, segment, sequence })
    }

    /// Returns all tombstones in the data of a record.
    pub(crate) fn decode_all(data: &[u8]) -> Option<Vec<Tombstone>> {
        let (all, rest) = data.as_chunks::<TOMBSTONE_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        all.iter().map(Tombstone::decode).collect()
    }
}
