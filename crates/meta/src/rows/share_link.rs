//! Share links: addresses by which anybody reads, or adds to, a part of a bucket.

use bytes::Bytes;
use cairn_auth::TokenHash;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{BucketId, Result, Timestamp};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Row, array, unexpected, unzigzag, zigzag};

/// Limits of everything that is added by a share link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UploadLimits {
    pub files: u64,
    pub bytes: u64,
}

/// A share link: the row `k l <user> <id>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShareLink {
    /// Hash of the token.
    pub hash: TokenHash,
    /// Id of the access key or token that made it. The link ends with it.
    pub credential: String,
    pub bucket: BucketId,
    /// The key of one object; or a prefix, which is empty or ends in `/`.
    pub key: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// The hash of its password; empty for none.
    pub password: Vec<u8>,
    /// Number of downloads that are allowed; 0 for any number.
    pub downloads: u64,
    pub downloaded: u64,
    /// `None` if the link is for reading. Otherwise objects may be added, and nothing else.
    pub uploads: Option<UploadLimits>,
    pub uploaded: UploadLimits,
    pub unknown: Vec<u8>,
}

impl ShareLink {
    /// Returns whether the link is for everything below a prefix.
    pub fn is_of_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    pub fn is_in_time(&self, now: Timestamp) -> bool {
        now < self.expires
    }
}

impl Row for ShareLink {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .bytes(1, &self.hash)
            .text(2, &self.credential)
            .number(3, self.bucket.0)
            .text(4, &self.key)
            .number(5, zigzag(self.created.0))
            .number(6, zigzag(self.expires.0));
        if !self.password.is_empty() {
            writer.bytes(7, &self.password);
        }
        writer.number(8, self.downloads).number(9, self.downloaded);
        if let Some(limits) = self.uploads {
            // A limit of 0 is a limit, too.
            writer.number(10, limits.files.saturating_add(1)).number(11, limits.bytes);
        }
        writer.number(12, self.uploaded.files).number(13, self.uploaded.bytes);
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<ShareLink> {
        let mut link = ShareLink::default();
        let (mut hash, mut files, mut bytes) = (None, 0, 0);
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => hash = Some(array("hash of a share link", &field.value)?),
                2 => link.credential = field.text()?,
                3 => link.bucket = BucketId(field.number()?),
                4 => link.key = field.text()?,
                5 => link.created = Timestamp(unzigzag(field.number()?)),
                6 => link.expires = Timestamp(unzigzag(field.number()?)),
                7 => link.password = field.value.to_vec(),
                8 => link.downloads = field.number()?,
                9 => link.downloaded = field.number()?,
                10 => files = field.number()?,
                11 => bytes = field.number()?,
                12 => link.uploaded.files = field.number()?,
                13 => link.uploaded.bytes = field.number()?,
                _ => field.keep(&mut link.unknown),
            }
        }
        link.hash = hash.ok_or_else(|| unexpected("share link", "no hash"))?;
        link.uploads = files.checked_sub(1).map(|files: u64| UploadLimits { files, bytes });
        Ok(link)
    }
}
