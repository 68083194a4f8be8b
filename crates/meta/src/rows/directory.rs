//! Rows of directories: entries and tallies.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Ino, Result, Timestamp};

use super::{FORMAT, Kind, Row, unexpected, unzigzag, zigzag};

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
    /// Time of the last creation, removal or renaming of an entry.
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
