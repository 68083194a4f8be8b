//! Identity of a store.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{CapabilitySet, Result};

use super::{FORMAT, Row};

/// Id of a store and what its readers must know: the row `c cluster`, which every program reads
/// before any other row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreIdentity {
    pub cluster: u64,
    /// Capabilities that are on in the store of one server. Those of a cluster are in its map.
    pub capabilities: CapabilitySet,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl StoreIdentity {
    pub fn new(cluster: u64) -> StoreIdentity {
        StoreIdentity { cluster, capabilities: CapabilitySet::NONE, unknown: Vec::new() }
    }

    /// Decodes the id of a store from its row.
    ///
    /// # Errors
    /// Those of [`Row::decode`].
    pub fn decode_cluster(row: &Bytes) -> Result<u64> {
        StoreIdentity::decode(row).map(|identity| identity.cluster)
    }
}

impl Row for StoreIdentity {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::requiring(self.capabilities);
        writer.number(1, self.cluster).raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<StoreIdentity> {
        let (capabilities, mut fields) = Fields::open_requiring(row, FORMAT)?;
        let mut identity = StoreIdentity { capabilities, ..StoreIdentity::new(0) };
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => identity.cluster = field.number()?,
                _ => field.keep(&mut identity.unknown),
            }
        }
        Ok(identity)
    }
}
