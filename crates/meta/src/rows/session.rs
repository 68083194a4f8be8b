//! Rows of a session: its state, its reserved inode numbers, and its last replies.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Ino, Result, Timestamp, UserId};

use super::{FORMAT, Row, unexpected, unzigzag, zigzag};

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionState {
    #[default]
    Live,
    /// Ended: nothing that it wrote can be published any more. Its orphans are still to be reaped.
    Ended,
    /// Ended, and its orphans are gone.
    Reaped,
}

/// Bit in the number of an owner that marks a mount; the other bits are the number of its user.
pub const MOUNT: u64 = 1 << 63;

/// A session: the row `s <session>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session {
    pub state: SessionState,
    pub started: Timestamp,
    /// Node that alone may attach it; 0 for the process that the master is in.
    pub owner: u64,
    /// Set if it comes from a dump: blocks that it wrote may be younger than these rows, so none of
    /// them is ever taken for garbage because nothing names it.
    pub loaded: bool,
    /// Epoch of a master in the same process, if the session reads leased rows only while that
    /// master holds its own lease: no later master need wait for it. 0 if the session has not
    /// declared that.
    pub bound: u64,
    pub unknown: Vec<u8>,
}

impl Session {
    /// Returns the user of a mount; `None` for a node, or for the process that the master is in.
    pub fn user(&self) -> Option<UserId> {
        (self.owner & MOUNT != 0).then_some(UserId(self.owner & !MOUNT))
    }
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
        if self.loaded {
            writer.number(4, 1);
        }
        writer.number(5, self.bound);
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
                4 => session.loaded = field.number()? != 0,
                5 => session.bound = field.number()?,
                _ => field.keep(&mut session.unknown),
            }
        }
        Ok(session)
    }
}

/// Inode numbers that only one session may use: the row `j <session>`. They are kept apart from the
/// session's own row, on which all operations of the session depend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReservedInos {
    /// First number and end of each range, the oldest first.
    pub ranges: Vec<(Ino, Ino)>,
    pub unknown: Vec<u8>,
}

impl ReservedInos {
    pub fn has(&self, ino: Ino) -> bool {
        self.ranges.iter().any(|(first, end)| (*first..*end).contains(&ino))
    }
}

impl Row for ReservedInos {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        for (first, end) in &self.ranges {
            writer.number(1, first.0).number(2, end.0);
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<ReservedInos> {
        let (mut reserved, mut first) = (ReservedInos::default(), Ino(0));
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
    /// Reply as it was sent to the session.
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
