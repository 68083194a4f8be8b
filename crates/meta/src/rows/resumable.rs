//! Resumable uploads and their progress.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{BucketId, Result, Timestamp};

use super::{FORMAT, Row, narrow, unzigzag, zigzag};

/// A resumable upload: the row `k r <user> <upload>`. Its bytes are the parts 1 to `parts` of the
/// multipart upload of the same number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resumable {
    pub bucket: BucketId,
    pub key: String,
    /// Number of bytes that will be sent in total; `offset` is the number received.
    pub length: u64,
    pub offset: u64,
    pub parts: u32,
    pub expires: Timestamp,
    /// Set once the object was made.
    pub is_done: bool,
    pub unknown: Vec<u8>,
}

impl Row for Resumable {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.bucket.0)
            .text(2, &self.key)
            .number(3, self.length)
            .number(4, self.offset)
            .number(5, self.parts.into())
            .number(6, zigzag(self.expires.0))
            .number(7, self.is_done.into())
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Resumable> {
        let mut resumable = Resumable::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => resumable.bucket = BucketId(field.number()?),
                2 => resumable.key = field.text()?,
                3 => resumable.length = field.number()?,
                4 => resumable.offset = field.number()?,
                5 => resumable.parts = narrow("parts", field.number()?)?,
                6 => resumable.expires = Timestamp(unzigzag(field.number()?)),
                7 => resumable.is_done = field.number()? != 0,
                _ => field.keep(&mut resumable.unknown),
            }
        }
        Ok(resumable)
    }
}
