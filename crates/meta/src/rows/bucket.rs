//! Buckets and their usage.

use bytes::Bytes;
use cairn_auth::{BucketAccess, Label, Rights, Visibility};
use cairn_base::codec::{Fields, Writer, put_varint, take_varint};
use cairn_base::{BucketId, Error, Redundancy, Result, Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::{
    BucketMarks, CorsRules, FORMAT, PublicAccessBlock, Row, StoredWebsite, decode_pairs,
    encode_pairs, narrow, public_access, unexpected, unzigzag, zigzag,
};

/// The rules for names on which S3 and POSIX disagree. People and programs read and write `objects`
/// and `files`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum BucketKind {
    /// Made through S3: object `a` may exist beside `a/b`, and POSIX sees the directory.
    #[default]
    S3,
    /// Made through HTTP or a mount: `a` beside `a/b` is refused.
    Posix,
}

impl BucketKind {
    /// Returns the word for people and programs.
    pub fn word(self) -> &'static str {
        match self {
            BucketKind::S3 => "objects",
            BucketKind::Posix => "files",
        }
    }

    /// Reads the word for a kind, or the former word of earlier versions.
    ///
    /// # Errors
    /// `Invalid` for any other word, with those that there are.
    pub fn parse(word: &str) -> Result<BucketKind> {
        match word {
            "objects" | "s3" => Ok(BucketKind::S3),
            "files" | "posix" => Ok(BucketKind::Posix),
            _ => Err(Error::Invalid(format!(
                "kind {word:?}: use files (keys are names of files, for mounts, NFS and people) or \
                 objects (any key of S3)"
            ))),
        }
    }
}

/// Settings of a bucket: the row `b <bucket>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    pub name: String,
    pub kind: BucketKind,
    pub owner: UserId,
    /// The visibility that holds: a public access block may hide the chosen one.
    pub visibility: Visibility,
    pub created: Timestamp,
    /// `Cache-Control` for objects that have none of their own; empty for none.
    pub cache_control: String,
    /// Rights of other users.
    pub grants: Vec<(UserId, Rights)>,
    pub tags: Vec<(String, String)>,
    /// Redundancy of the bucket's blocks; `None` for the default of the cluster.
    pub redundancy: Option<Redundancy>,
    /// Redirects clients of the HTTP door to the data even if they do not ask for it.
    pub redirect: bool,
    pub cors: CorsRules,
    /// Shows listings to browsers as pages.
    pub html_listing: bool,
    pub website: StoredWebsite,
    /// Refuses all changes of the bucket's content.
    pub read_only: bool,
    pub public_access_block: Option<PublicAccessBlock>,
    /// True if the bucket is private only because its public access block hides that it is public.
    pub is_public_behind: bool,
    pub marks: BucketMarks,
    pub unknown: Vec<u8>,
}

impl Bucket {
    /// Returns the settings that decide on access, for a caller that knows the bucket by its name.
    pub fn access(&self) -> BucketAccess<'_> {
        self.access_as(Label::Name(&self.name))
    }

    /// Returns the same as [`Bucket::access`], for a caller that has reached the bucket by its
    /// number.
    pub fn access_by_number(&self, bucket: BucketId) -> BucketAccess<'_> {
        self.access_as(Label::Number(bucket))
    }

    /// Returns the visibility that was chosen, which a public access block may hide.
    pub fn chosen_visibility(&self) -> Visibility {
        if self.is_public_behind { Visibility::Public } else { self.visibility }
    }

    /// Chooses the visibility. Behind a public access block that hides it, the bucket is private
    /// until the block ends.
    pub fn choose_visibility(&mut self, chosen: Visibility) {
        let hides = self.public_access_block.is_some_and(PublicAccessBlock::hides);
        self.is_public_behind = hides && chosen == Visibility::Public;
        self.visibility = if hides { Visibility::Private } else { chosen };
    }

    /// Sets the public access block, or ends it.
    pub fn set_public_access_block(&mut self, block: Option<PublicAccessBlock>) {
        let chosen = self.chosen_visibility();
        self.public_access_block = block;
        self.choose_visibility(chosen);
    }

    fn access_as<'a>(&'a self, label: Label<'a>) -> BucketAccess<'a> {
        let Bucket { owner, visibility, grants, read_only, .. } = self;
        let (owner, visibility, read_only) = (*owner, *visibility, *read_only);
        BucketAccess { label, owner, visibility, grants, read_only }
    }
}

impl Row for Bucket {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        let kind = match self.kind {
            BucketKind::S3 => 1,
            BucketKind::Posix => 2,
        };
        writer
            .text(1, &self.name)
            .number(2, kind)
            .number(3, self.owner.0)
            .number(4, u64::from(self.visibility == Visibility::Public))
            .number(5, zigzag(self.created.0))
            .text(6, &self.cache_control);
        for (user, rights) in &self.grants {
            let mut grant = Vec::new();
            put_varint(&mut grant, user.0);
            grant.push(rights.bits());
            writer.bytes(7, &grant);
        }
        if !self.tags.is_empty() {
            writer.bytes(8, &encode_pairs(&self.tags));
        }
        writer
            .number(9, self.redundancy.map_or(0, Redundancy::number).into())
            .number(10, self.redirect.into());
        if !self.cors.is_empty() {
            writer.bytes(11, self.cors.bytes());
        }
        if self.html_listing {
            writer.number(12, 1);
        }
        if !self.website.is_empty() {
            writer.bytes(13, self.website.bytes());
        }
        if self.read_only {
            writer.number(14, 1);
        }
        writer
            .number(15, public_access::encode(self.public_access_block, self.is_public_behind))
            .number(16, self.marks.0);
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Bucket> {
        let mut bucket = Bucket::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => bucket.name = field.text()?,
                2 => {
                    bucket.kind = match field.number()? {
                        1 => BucketKind::S3,
                        2 => BucketKind::Posix,
                        other => return Err(unexpected("kind of bucket", other)),
                    }
                }
                3 => bucket.owner = UserId(field.number()?),
                4 => {
                    bucket.visibility = match field.number()? {
                        0 => Visibility::Private,
                        1 => Visibility::Public,
                        other => return Err(unexpected("visibility", other)),
                    }
                }
                5 => bucket.created = Timestamp(unzigzag(field.number()?)),
                6 => bucket.cache_control = field.text()?,
                7 => bucket.grants.push(decode_grant(&field.value)?),
                8 => bucket.tags = decode_pairs(&field.value)?,
                9 => {
                    let replicas = narrow("replicas", field.number()?)?;
                    bucket.redundancy = Redundancy::from_number(replicas);
                }
                10 => bucket.redirect = field.number()? != 0,
                11 => bucket.cors = CorsRules::stored(field.value),
                12 => bucket.html_listing = field.number()? != 0,
                13 => bucket.website = StoredWebsite::stored(field.value),
                14 => bucket.read_only = field.number()? != 0,
                15 => {
                    let bits = field.number()?;
                    (bucket.public_access_block, bucket.is_public_behind) =
                        public_access::decode(bits)
                            .ok_or_else(|| unexpected("public access block", bits))?;
                }
                16 => bucket.marks = BucketMarks(field.number()?),
                _ => field.keep(&mut bucket.unknown),
            }
        }
        // A program that knows no blocks may have made the bucket public.
        if bucket.visibility == Visibility::Public {
            bucket.choose_visibility(Visibility::Public);
        }
        Ok(bucket)
    }
}

fn decode_grant(mut bytes: &[u8]) -> Result<(UserId, Rights)> {
    let user = UserId(take_varint(&mut bytes)?);
    match bytes {
        [bits] => Ok((user, Rights::from_bits(*bits))),
        _ => Err(unexpected("grant", format!("{} bytes", bytes.len()))),
    }
}

/// Usage and quotas of a bucket: the row `n <bucket>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Inodes that are not directories.
    pub objects: u64,
    /// Bytes of all objects; holes and shared bodies count in full.
    pub bytes: u64,
    /// Multipart uploads in progress.
    pub uploads: u32,
    /// Quota of `objects`; 0 for none.
    pub quota_objects: u64,
    /// Quota of `bytes`; 0 for none.
    pub quota_bytes: u64,
    /// Bytes of the parts of unfinished uploads.
    pub upload_bytes: u64,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Usage {
    /// Returns the bytes that count for the quota: those of objects, and of unfinished uploads.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.upload_bytes)
    }
}

impl Row for Usage {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.number(1, self.objects).number(2, self.bytes).number(3, u64::from(self.uploads));
        let others = [(4, self.quota_objects), (5, self.quota_bytes), (6, self.upload_bytes)];
        for (tag, number) in others {
            if number > 0 {
                writer.number(tag, number);
            }
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Usage> {
        let mut usage = Usage::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => usage.objects = field.number()?,
                2 => usage.bytes = field.number()?,
                3 => usage.uploads = narrow("uploads", field.number()?)?,
                4 => usage.quota_objects = field.number()?,
                5 => usage.quota_bytes = field.number()?,
                6 => usage.upload_bytes = field.number()?,
                _ => field.keep(&mut usage.unknown),
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_private_behind_a_block_and_public_again_after_it() {
        let mut bucket = Bucket { visibility: Visibility::Public, ..Bucket::default() };
        let hiding = PublicAccessBlock { restrict_buckets: true, ..PublicAccessBlock::default() };
        bucket.set_public_access_block(Some(hiding));
        let stored = Bucket::decode(&bucket.encode()).unwrap();
        assert_eq!(stored, bucket);
        assert_eq!(stored.visibility, Visibility::Private);
        assert_eq!(stored.chosen_visibility(), Visibility::Public);
        let ended = |bucket: &Bucket| {
            let mut bucket = bucket.clone();
            bucket.set_public_access_block(None);
            bucket.visibility
        };
        assert_eq!(ended(&bucket), Visibility::Public);
        bucket.choose_visibility(Visibility::Private);
        assert_eq!(ended(&bucket), Visibility::Private);
        bucket.choose_visibility(Visibility::Public);
        assert_eq!((bucket.visibility, ended(&bucket)), (Visibility::Private, Visibility::Public));
    }

    /// A program that does not know blocks sets the visibility and keeps the field.
    #[test]
    fn a_public_bucket_with_a_block_of_an_older_program_is_private() {
        let hiding = PublicAccessBlock { ignore_acls: true, ..PublicAccessBlock::default() };
        let by_older = Bucket {
            visibility: Visibility::Public,
            public_access_block: Some(hiding),
            ..Bucket::default()
        };
        let read = Bucket::decode(&by_older.encode()).unwrap();
        assert_eq!(read.visibility, Visibility::Private);
        assert_eq!(read.chosen_visibility(), Visibility::Public);
    }
}
