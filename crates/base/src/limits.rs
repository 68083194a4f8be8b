//! Every limit of the store, in one place.

/// Largest block, bytes.
pub const BLOCK_BYTES: usize = 4 << 20;
/// Bytes covered by one crc32c in a stored block.
pub const SUB_BLOCK_BYTES: usize = 16 << 10;
/// Length of the part of a body whose extents share one metadata row, bytes.
pub const CHUNK_BYTES: u64 = 64 << 20;
/// Most extents in one chunk of a body; beyond that it must be coalesced first.
pub const CHUNK_EXTENTS: usize = 1024;
/// Longest body that is kept inline in the metadata, bytes: one sync instead of two.
pub const INLINE_BYTES: usize = 16 << 10;
/// Largest object, bytes (S3's own limit: as many parts as there can be, of 5 GiB each).
pub const OBJECT_BYTES: u64 = PARTS as u64 * PART_BYTES_MAX;

/// Most rows that one metadata operation may touch.
pub const OP_ROWS: usize = 4096;
/// Most bytes that one metadata operation may write.
pub const OP_BYTES: usize = 1 << 20;
/// Most operations in one commit.
pub const BATCH_OPS: usize = 2048;
/// Bytes after which a batch takes no further operation.
pub const BATCH_BYTES: usize = 4 << 20;

/// Longest key of an object, bytes.
pub const KEY_BYTES: usize = 1024;
/// Longest component of a path for POSIX, bytes.
pub const NAME_BYTES: usize = 255;
/// Lengths of bucket names, by S3's rules.
pub const BUCKET_NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// Longest target of a symbolic link, bytes.
pub const SYMLINK_BYTES: usize = 4095;
/// Longest value of an extended attribute, bytes.
pub const XATTR_BYTES: usize = 64 << 10;
/// Most bytes of user metadata of an object, names and values together.
pub const USER_METADATA_BYTES: usize = 8 << 10;
/// Longest value of Content-Type and each similar header, bytes.
pub const HEADER_VALUE_BYTES: usize = 1024;
/// Most tags on an object; on a bucket.
pub const OBJECT_TAGS: usize = 10;
pub const BUCKET_TAGS: usize = 50;
/// Most CORS rules of a bucket, and most bytes of all of them as stored.
pub const CORS_RULES: usize = 100;
pub const CORS_BYTES: usize = 32 << 10;
/// Most rules of the website of a bucket, and most bytes of the whole website as stored.
pub const WEBSITE_RULES: usize = 50;
pub const WEBSITE_BYTES: usize = 32 << 10;
/// Most resumable uploads in progress of one user, and most bytes in all of them.
pub const RESUMABLE_UPLOADS: usize = 100;
pub const RESUMABLE_BYTES: u64 = 2 * OBJECT_BYTES;
/// Most buckets of one user, unless set otherwise; root has no limit.
pub const USER_BUCKETS: u64 = 1000;
/// Most unfinished uploads that one user began, multipart and resumable, unless set otherwise.
pub const USER_UPLOADS: u64 = 10_000;
/// Bytes of an upload of unknown length that are admitted at once: it may exceed a quota by this
/// much.
pub const QUOTA_PORTION: u64 = 64 << 20;
/// Bytes of an upload that are accepted before its quotas are checked; they are always checked at
/// its end.
pub const QUOTA_UNASKED: u64 = 1 << 20;
/// Most share links of one user.
pub const SHARE_LINKS: usize = 1000;
/// Most keys in one page of a listing.
pub const LIST_KEYS: usize = 1000;
/// Most keys in one batch delete.
pub const DELETE_KEYS: usize = 1000;
/// Most parts of a multipart upload.
pub const PARTS: u32 = 10_000;
/// Smallest part of a multipart upload, bytes. The last part may be smaller.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// Largest part of a multipart upload and largest single PUT, bytes.
pub const PART_BYTES_MAX: u64 = 5 << 30;
