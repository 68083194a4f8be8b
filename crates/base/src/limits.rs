//! Every limit of the store, in one place.

/// The largest block, bytes.
pub const BLOCK_BYTES: usize = 4 << 20;
/// Bytes covered by one crc32c in a stored block.
pub const SUB_BLOCK_BYTES: usize = 16 << 10;
/// The part of a body whose extents share one metadata row, bytes.
pub const CHUNK_BYTES: u64 = 64 << 20;
/// Extents in one chunk of a body; beyond that it must be coalesced first.
pub const CHUNK_EXTENTS: usize = 1024;
/// A body up to this length is kept inline in the metadata, bytes: one sync instead of two.
pub const INLINE_BYTES: usize = 16 << 10;
/// The largest object, bytes (S3's own limit: 5 TiB).
pub const OBJECT_BYTES: u64 = 5 << 40;

/// Rows that one metadata operation may touch.
pub const OP_ROWS: usize = 4096;
/// Bytes that one metadata operation may write.
pub const OP_BYTES: usize = 1 << 20;
/// Operations in one commit.
pub const BATCH_OPS: usize = 2048;
/// Bytes after which a batch takes no further operation.
pub const BATCH_BYTES: usize = 4 << 20;

/// An object's whole key, bytes.
pub const KEY_BYTES: usize = 1024;
/// One component of a path for POSIX, bytes.
pub const NAME_BYTES: usize = 255;
/// Bucket names: S3's rules.
pub const BUCKET_NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// The target of a symbolic link, bytes.
pub const SYMLINK_BYTES: usize = 4095;
/// The value of an extended attribute, bytes.
pub const XATTR_BYTES: usize = 64 << 10;
/// User metadata of an object, names and values together, bytes.
pub const USER_METADATA_BYTES: usize = 8 << 10;
/// Content-Type and its like, each, bytes.
pub const HEADER_VALUE_BYTES: usize = 1024;
/// Tags on an object; on a bucket.
pub const OBJECT_TAGS: usize = 10;
pub const BUCKET_TAGS: usize = 50;
/// Rules of CORS of a bucket, and all of them as they are stored, bytes.
pub const CORS_RULES: usize = 100;
pub const CORS_BYTES: usize = 32 << 10;
/// Rules of the website of a bucket, and all of it as it is stored, bytes.
pub const WEBSITE_RULES: usize = 50;
pub const WEBSITE_BYTES: usize = 32 << 10;
/// Resumable uploads of one user that are in progress, and the bytes in all of them.
pub const RESUMABLE_UPLOADS: usize = 100;
pub const RESUMABLE_BYTES: u64 = 10 << 40;
/// Buckets of one user, unless it is set otherwise; those of root are not limited.
pub const USER_BUCKETS: u64 = 1000;
/// Unfinished uploads that one user began, multipart and resumable, unless it is set otherwise.
pub const USER_UPLOADS: u64 = 10_000;
/// Bytes of an upload of unknown length that are admitted at once: as much may come beyond a quota.
pub const QUOTA_PORTION: u64 = 64 << 20;
/// Bytes of an upload that are taken before its quotas are asked for; they decide at its end.
pub const QUOTA_UNASKED: u64 = 1 << 20;
/// Share links of one user.
pub const SHARE_LINKS: usize = 1000;
/// Keys in one page of a listing.
pub const LIST_KEYS: usize = 1000;
/// Keys in one batch delete.
pub const DELETE_KEYS: usize = 1000;
/// Parts of a multipart upload.
pub const PARTS: u32 = 10_000;
/// Smallest part of a multipart upload, bytes. The last part may be smaller.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// The largest part of a multipart upload and the largest single PUT, bytes.
pub const PART_BYTES_MAX: u64 = 5 << 30;
