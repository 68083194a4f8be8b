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

/// The progress of a directory's ordered entries. From its beginning on, each change of an entry
/// changes its ordered entry as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryOrder {
    /// Value of [`MasterEpochs::ordered_since`](super::MasterEpochs) when it began. It is void once
    /// that is another one: a master that keeps no ordered entries has led meanwhile.
    pub since: u64,
    pub stage: OrderStage,
}

/// A stage of a directory's ordered entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderStage {
    /// Former ordered entries are removed.
    Clear,
    /// Ordered entries are made, so far for the entries up to this name.
    Build(Bytes),
    /// Each entry has its ordered entry.
    Complete,
}

impl OrderStage {
    fn number(&self) -> u64 {
        match self {
            OrderStage::Clear => 1,
            OrderStage::Build(_) => 2,
            OrderStage::Complete => 3,
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
    /// Ordered entries; `None` if the directory has none.
    pub order: Option<EntryOrder>,
    pub unknown: Vec<u8>,
}

impl Row for Tally {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.entries).number(2, self.directories).number(3, zigzag(self.mtime.0));
        if let Some(order) = &self.order {
            writer.number(4, order.stage.number()).number(5, order.since);
            if let OrderStage::Build(name) = &order.stage {
                writer.bytes(6, name);
            }
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Tally> {
        let mut tally = Tally::default();
        let (mut stage, mut since, mut name) = (0, 0, Bytes::new());
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => tally.entries = field.number()?,
                2 => tally.directories = field.number()?,
                3 => tally.mtime = Timestamp(unzigzag(field.number()?)),
                4 => stage = field.number()?,
                5 => since = field.number()?,
                6 => name = field.value.clone(),
                _ => field.keep(&mut tally.unknown),
            }
        }
        let stage = match stage {
            0 => None,
            1 => Some(OrderStage::Clear),
            2 => Some(OrderStage::Build(name)),
            3 => Some(OrderStage::Complete),
            other => return Err(unexpected("stage of ordered entries", other)),
        };
        tally.order = stage.map(|stage| EntryOrder { since, stage });
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `docs/format.md`.
    #[test]
    fn orders_of_entries_are_written_as_they_were() {
        let name = Bytes::from_static(b"na");
        for (stage, bytes) in [
            (OrderStage::Clear, &[1, 1, 1, 9, 4, 1, 1, 5, 1, 7][..]),
            (OrderStage::Build(name), &[1, 1, 1, 9, 4, 1, 2, 5, 1, 7, 6, 2, b'n', b'a']),
            (OrderStage::Build(Bytes::new()), &[1, 1, 1, 9, 4, 1, 2, 5, 1, 7, 6, 0]),
            (OrderStage::Complete, &[1, 1, 1, 9, 4, 1, 3, 5, 1, 7]),
        ] {
            let order = Some(EntryOrder { since: 7, stage });
            let tally = Tally { entries: 9, order, ..Tally::default() };
            assert_eq!(tally.encode(), bytes);
            assert_eq!(Tally::decode(&tally.encode()).unwrap(), tally);
        }
        let unknown = Bytes::from_static(&[1, 1, 1, 9, 4, 1, 4]);
        assert!(Tally::decode(&unknown).is_err());
    }
}
