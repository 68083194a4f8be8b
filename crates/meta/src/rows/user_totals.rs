//! Usage of a user over all buckets.

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::codec::{Fields, Writer};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Row};

/// Usage of all buckets of a user together, and the uploads that the user has begun: the row `c
/// owned/<user>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserTotals {
    pub buckets: u64,
    /// Inodes in the user's buckets that are not directories.
    pub objects: u64,
    /// Bytes of all objects.
    pub bytes: u64,
    /// Bytes of parts of unfinished uploads in the user's buckets.
    pub upload_bytes: u64,
    /// Unfinished uploads that the user began, in any bucket.
    pub uploads: u64,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Row for UserTotals {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.buckets)
            .number(2, self.objects)
            .number(3, self.bytes)
            .number(4, self.upload_bytes)
            .number(5, self.uploads)
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<UserTotals> {
        let mut owned = UserTotals::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => owned.buckets = field.number()?,
                2 => owned.objects = field.number()?,
                3 => owned.bytes = field.number()?,
                4 => owned.upload_bytes = field.number()?,
                5 => owned.uploads = field.number()?,
                _ => field.keep(&mut owned.unknown),
            }
        }
        Ok(owned)
    }
}

/// Quotas of a user; 0 stands for the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UserQuotas {
    /// Bytes in all buckets of the user together, with unfinished uploads. 0: no quota.
    pub bytes: u64,
    /// Objects in all buckets of the user together. 0: no quota.
    pub objects: u64,
    /// Buckets that the user owns. 0: [`cairn_base::limits::USER_BUCKETS`].
    pub buckets: u64,
    /// Unfinished uploads that the user began. 0: [`cairn_base::limits::USER_UPLOADS`].
    pub uploads: u64,
}
