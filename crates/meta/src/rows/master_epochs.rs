//! The epochs of masters that maintain what masters of earlier versions do not know of.

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::codec::{Fields, Writer};

use super::{FORMAT, Row};

/// The row `c owned_epoch`. Each master writes it before it serves. A master of a version that does
/// not know a field writes the row without it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MasterEpochs {
    /// Epoch of the last master that counted what belongs to users.
    pub counted: u64,
    /// Epoch since which all masters have kept ordered entries; 0 if the last one did not.
    pub ordered_since: u64,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Row for MasterEpochs {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.counted).number(2, self.ordered_since).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<MasterEpochs> {
        let mut epochs = MasterEpochs::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => epochs.counted = field.number()?,
                2 => epochs.ordered_since = field.number()?,
                _ => field.keep(&mut epochs.unknown),
            }
        }
        Ok(epochs)
    }
}
