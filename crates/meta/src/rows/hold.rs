//! Holds of backups.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Result, Timestamp};

use super::{FORMAT, Row, unexpected, unzigzag, zigzag};

/// Keeps freed blocks from being deleted, for a backup: the row `c hold/<id>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hold {
    /// Owner of the hold: text for people.
    pub owner: String,
    /// Batch that made the hold. Blocks freed by later batches are kept.
    pub batch: u64,
    pub begun: Timestamp,
    /// End of the hold, unless it is renewed.
    pub ends: Timestamp,
    pub unknown: Vec<u8>,
}

impl Row for Hold {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .text(1, &self.owner)
            .number(2, self.batch)
            .number(3, zigzag(self.begun.0))
            .number(4, zigzag(self.ends.0))
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Hold> {
        let mut hold = Hold::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => hold.owner = field.text()?,
                2 => hold.batch = field.number()?,
                3 => hold.begun = Timestamp(unzigzag(field.number()?)),
                4 => hold.ends = Timestamp(unzigzag(field.number()?)),
                _ => field.keep(&mut hold.unknown),
            }
        }
        if hold.owner.is_empty() { Err(unexpected("hold", "no owner")) } else { Ok(hold) }
    }
}
