//! Directory entries and the small rows: tallies, sessions, drains and freed blocks.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{BodyId, GroupId, Ino, Result, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Kind, Row, array, narrow, unexpected, unzigzag, zigzag};

/// A directory entry: the row `d <parent> <name>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub ino: Ino,
    pub kind: Kind,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Entry {
    pub fn new(ino: Ino, kind: Kind) -> Entry {
        Entry { ino, kind, unknown: Vec::new() }
    }
}

impl Row for Entry {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.ino.0).number(2, self.kind.number()).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Entry> {
        let mut entry = Entry::new(Ino(0), Kind::File);
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => entry.ino = Ino(field.number()?),
                2 => entry.kind = Kind::from_number(field.number()?)?,
                _ => field.keep(&mut entry.unknown),
            }
        }
        match entry.ino {
            Ino(0) => Err(unexpected("directory entry", "inode 0")),
            _ => Ok(entry),
        }
    }
}

/// The properties of a directory that change with every child: the row `t <ino>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that are directories.
    pub directories: u64,
    /// When an entry was last made, removed or renamed.
    pub mtime: Timestamp,
    pub unknown: Vec<u8>,
}

impl Row for Tally {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.entries)
            .number(2, self.directories)
            .number(3, zigzag(self.mtime.0))
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => tally.entries = field.number()?,
                2 => tally.directories = field.number()?,
                3 => tally.mtime = Timestamp(unzigzag(field.number()?)),
                _ => field.keep(&mut tally.unknown),
            }
        }
        Ok(tally)
    }
}

/// How far a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionState {
    #[default]
    Live,
    /// Ended: nothing it wrote will be published any more. Its orphans are still to be reaped.
    Ended,
    /// Ended, and its orphans are gone.
    Reaped,
}

/// A session: the row `s <session>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    pub state: SessionState,
    pub started: Timestamp,
    /// The node that alone may attach it; 0 for the process that the master is in.
    pub owner: u64,
    pub unknown: Vec<u8>,
}

impl Row for Session {
    fn encode(&self) -> Bytes {
        let state = match self.state {
            SessionState::Live => 1,
            SessionState::Ended => 2,
            SessionState::Reaped => 3,
        };
        let mut writer = Writer::new(FORMAT);
        writer.number(1, state).number(2, zigzag(self.started.0));
        if self.owner != 0 {
            writer.number(3, self.owner);
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Session> {
        let mut session = Session::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => {
                    session.state = match field.number()? {
                        1 => SessionState::Live,
                        2 => SessionState::Ended,
                        3 => SessionState::Reaped,
                        other => return Err(unexpected("session", other)),
                    }
                }
                2 => session.started = Timestamp(unzigzag(field.number()?)),
                3 => session.owner = field.number()?,
                _ => field.keep(&mut session.unknown),
            }
        }
        Ok(session)
    }
}

/// Numbers of inodes that nobody but a session gives to an inode: the row `j <session>`. Apart from
/// the session's own row, on which all hangs that the session does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserved {
    /// The first and the end of each range, the oldest first.
    pub ranges: Vec<(Ino, Ino)>,
    pub unknown: Vec<u8>,
}

impl Reserved {
    pub fn has(&self, ino: Ino) -> bool {
        self.ranges.iter().any(|(first, end)| (*first..*end).contains(&ino))
    }
}

impl Row for Reserved {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        for (first, end) in &self.ranges {
            writer.number(1, first.0).number(2, end.0);
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Reserved> {
        let (mut reserved, mut first) = (Reserved::default(), Ino(0));
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => first = Ino(field.number()?),
                2 => reserved.ranges.push((first, Ino(field.number()?))),
                _ => field.keep(&mut reserved.unknown),
            }
        }
        Ok(reserved)
    }
}

/// The last operation of a slot that changed anything: the row `q <session> <slot>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    pub sequence: u64,
    /// As it was sent to the session.
    pub reply: Bytes,
    pub unknown: Vec<u8>,
}

impl Row for Slot {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.sequence).bytes(2, &self.reply).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Slot> {
        let mut slot = Slot::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => slot.sequence = field.number()?,
                2 => slot.reply = field.value.clone(),
                _ => field.keep(&mut slot.unknown),
            }
        }
        Ok(slot)
    }
}

/// The thing to be drained, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Drain {
    /// A body nobody refers to any more: free its blocks, drop its references, delete its rows.
    Body,
    /// A body being put together by `session` from parts that it does not own yet: delete its
    /// rows only. Drained when that session has ended.
    Prepared { session: SessionId },
    /// An aborted upload: drop all its parts and what they refer to.
    Aborted,
    /// A completed upload: drop the parts that are not in `body`, keep the others as part table.
    Completed { body: BodyId },
    /// The part table of an object that is gone: delete the rows. Where the upload was not
    /// drained before, drop the parts that are not in `body`.
    PartTable { body: Option<BodyId> },
}

/// Something to be drained: the rows `z b <body>` and `z u <upload>`.
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
pub struct Freed {
    pub group: GroupId,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Freed {
    pub fn new(group: GroupId) -> Freed {
        Freed { group, unknown: Vec::new() }
    }
}

impl Row for Freed {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, u64::from(self.group.0)).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Freed> {
        let mut freed = Freed::new(GroupId(0));
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
