//! Extents: the places of the bytes of a body.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer, put_varint, take_varint};
use cairn_base::{BlockId, BodyId, Error, GroupId, Result};

use super::{FORMAT, Row, array, narrow, unexpected};

/// The place of a run of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a block, starting at `offset` of the block.
    Block { group: GroupId, block: BlockId, offset: u32 },
    /// In this row.
    Inline(Bytes),
    /// In another body, starting at `offset` of that body.
    Body { body: BodyId, offset: u64 },
}

/// A run of a body: `len` bytes starting at `offset` of the body. A range that no extent covers is
/// a hole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
    pub place: Place,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Returns the part of this extent within `start..end`; `None` if they do not overlap.
    pub fn slice(&self, start: u64, end: u64) -> Option<Extent> {
        let from = self.offset.max(start);
        let to = self.end().min(end);
        if from >= to {
            return None;
        }
        let skip = from - self.offset;
        let place = match &self.place {
            Place::Block { group, block, offset } => {
                Place::Block { group: *group, block: *block, offset: offset + skip as u32 }
            }
            Place::Inline(bytes) => {
                Place::Inline(bytes.slice(skip as usize..(skip + to - from) as usize))
            }
            Place::Body { body, offset } => Place::Body { body: *body, offset: offset + skip },
        };
        Some(Extent { offset: from, len: to - from, place })
    }
}

/// The extents of one chunk of a body, by offset, not overlapping: the row `e <body> <chunk>`. The
/// extents of a block stay in the row of the chunk it was written for, and may reach up to one
/// block into the next.
///
/// It keeps no fields of a newer version: an extent that is not understood would be read as a hole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents {
    pub extents: Vec<Extent>,
}

impl Row for Extents {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        self.extents.iter().for_each(|extent| write_extent(&mut writer, extent));
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Extents> {
        let mut extents = Extents::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            let extent = decode_extent(field.tag, &field.value)?;
            check_order(extents.extents.last(), &extent)?;
            extents.extents.push(extent);
        }
        Ok(extents)
    }
}

/// Encodes one extent to be sent, as a row with nothing else.
pub(super) fn encode_one(extent: &Extent) -> Bytes {
    let mut writer = Writer::new(FORMAT);
    write_extent(&mut writer, extent);
    writer.finish()
}

/// Decodes the result of [`encode_one`]. Refuses an extent with an addition of a newer version:
/// without the addition it may mean other bytes.
pub(super) fn decode_one(row: &Bytes) -> Result<Extent> {
    let mut fields = Fields::open(row, FORMAT)?;
    let (Some(field), None) = (fields.next_field()?, fields.next_field()?) else {
        return Err(unexpected("extent", "other fields than one extent"));
    };
    let extent = decode_extent(field.tag, &field.value)?;
    check_order(None, &extent)?;
    Ok(extent)
}

fn write_extent(writer: &mut Writer, extent: &Extent) {
    let mut out = Vec::with_capacity(40);
    put_varint(&mut out, extent.offset);
    put_varint(&mut out, extent.len);
    let tag = match &extent.place {
        Place::Block { group, block, offset } => {
            put_varint(&mut out, u64::from(group.0));
            out.extend_from_slice(&block.to_bytes());
            put_varint(&mut out, u64::from(*offset));
            1
        }
        Place::Inline(bytes) => {
            out.extend_from_slice(bytes);
            2
        }
        Place::Body { body, offset } => {
            out.extend_from_slice(&body.to_bytes());
            put_varint(&mut out, *offset);
            3
        }
    };
    writer.bytes(tag, &out);
}

/// Decodes an extent.
///
/// # Errors
/// `NotImplemented` for a kind of place that a later release has added.
fn decode_extent(tag: u32, bytes: &Bytes) -> Result<Extent> {
    if !(1..=3).contains(&tag) {
        return Err(Error::NotImplemented(format!(
            "extents of kind {tag}: a later release wrote this: install that release"
        )));
    }
    let mut rest: &[u8] = bytes;
    let offset = take_varint(&mut rest)?;
    let len = take_varint(&mut rest)?;
    let place = match tag {
        1 => {
            let group = GroupId(narrow("group", take_varint(&mut rest)?)?);
            let block = BlockId::from_bytes(take_array(&mut rest)?);
            let offset: u32 = narrow("offset in a block", take_varint(&mut rest)?)?;
            check_end(rest)?;
            if len.checked_add(u64::from(offset)).is_none_or(|end| end > u64::from(u32::MAX)) {
                return Err(unexpected("extent", format!("{len} bytes of a block")));
            }
            Place::Block { group, block, offset }
        }
        2 => {
            if rest.len() as u64 != len {
                return Err(unexpected("inline extent", rest.len()));
            }
            Place::Inline(bytes.slice(bytes.len() - rest.len()..))
        }
        _ => {
            let body = BodyId::from_bytes(take_array(&mut rest)?);
            let offset = take_varint(&mut rest)?;
            check_end(rest)?;
            Place::Body { body, offset }
        }
    };
    Ok(Extent { offset, len, place })
}

/// Refuses an addition of a newer version to an extent, which would be lost when the row is
/// changed.
fn check_end(rest: &[u8]) -> Result<()> {
    match rest {
        [] => Ok(()),
        rest => Err(unexpected("extent", format!("{} bytes after its end", rest.len()))),
    }
}

fn take_array(rest: &mut &[u8]) -> Result<[u8; 16]> {
    let (head, tail) = rest.split_at_checked(16).ok_or_else(|| unexpected("id", "cut short"))?;
    *rest = tail;
    array("id", head)
}

fn check_order(previous: Option<&Extent>, next: &Extent) -> Result<()> {
    let start = previous.map_or(0, Extent::end);
    let fits = next.len > 0 && next.offset.checked_add(next.len).is_some();
    if fits && next.offset >= start {
        return Ok(());
    }
    Err(unexpected("body", format!("extent at {} after {start}", next.offset)))
}
