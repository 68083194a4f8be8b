//! Rows of garbage: bodies and uploads to be drained, and blocks to be freed.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{BodyId, GroupId, Result, SessionId};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Row, array, narrow, unexpected};

/// The kind of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Drain {
    /// A body to which nothing refers any more: frees its blocks, drops its references, deletes its
    /// rows.
    Body,
    /// A body being put together by `session` from parts that it does not own yet: deletes its rows
    /// only, once that session has ended.
    Prepared { session: SessionId },
    /// An aborted upload: drops all its parts and the bodies that they refer to.
    Aborted,
    /// A completed upload: drops the parts that are not in `body`, keeps the others as part table.
    Completed { body: BodyId },
    /// The part table of a removed object: deletes the rows. If the upload was not drained before,
    /// also drops the parts that are not in `body`.
    PartTable { body: Option<BodyId> },
}

/// A body or upload to be drained: the rows `z b <body>` and `z u <upload>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draining {
    pub drain: Drain,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl From<Drain> for Draining {
    fn from(drain: Drain) -> Draining {
        Draining { drain, unknown: Vec::new() }
    }
}

impl Row for Draining {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        match &self.drain {
            Drain::Body => writer.number(1, 1),
            Drain::Prepared { session } => writer.number(1, 2).number(2, session.0),
            Drain::Aborted => writer.number(1, 3),
            Drain::Completed { body } => writer.number(1, 4).bytes(3, &body.to_bytes()),
            Drain::PartTable { body: None } => writer.number(1, 5),
            Drain::PartTable { body: Some(body) } => writer.number(1, 5).bytes(3, &body.to_bytes()),
        };
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Draining> {
        let (mut what, mut session, mut body) = (0, SessionId(0), None);
        let mut unknown = Vec::new();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => what = field.number()?,
                2 => session = SessionId(field.number()?),
                3 => body = Some(BodyId::from_bytes(array("body id", &field.value)?)),
                _ => field.keep(&mut unknown),
            }
        }
        let drain = match (what, body) {
            (1, _) => Drain::Body,
            (2, _) => Drain::Prepared { session },
            (3, _) => Drain::Aborted,
            (4, Some(body)) => Drain::Completed { body },
            (4, None) => return Err(unexpected("drain", "a completed upload without a body")),
            (5, body) => Drain::PartTable { body },
            (other, _) => return Err(unexpected("drain", other)),
        };
        Ok(Draining { drain, unknown })
    }
}

/// A block to free: the row `f <batch> <block>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockToFree {
    pub group: GroupId,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl BlockToFree {
    pub fn new(group: GroupId) -> BlockToFree {
        BlockToFree { group, unknown: Vec::new() }
    }
}

impl Row for BlockToFree {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, u64::from(self.group.0)).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<BlockToFree> {
        let mut freed = BlockToFree::new(GroupId(0));
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => freed.group = GroupId(narrow("group", field.number()?)?),
                _ => field.keep(&mut freed.unknown),
            }
        }
        Ok(freed)
    }
}
