//! Files over metadata and blocks: the read and write paths, the cache of blocks, garbage.
//!
//! This crate is not a door (it knows no HTTP, XML or FUSE). It does not decide on rights
//! (operations of the metadata do), and does not know whether its blocks are local or remote.
//!
//! ```text
//!   door ──► Fs::begin ─► BodyWriter::push … finish ─► WrittenBody ─► Fs::put_object | put_part
//!            │              blocks, several at once, durable        one operation publishes them
//!            ├─► Fs::open ─► Object ─► read | send ─► stream of Bytes from cache or blocks
//!            │                 └─► layout ─► Layout::send, where there is no metadata
//!            └─► Fs::run | read (any other operation of the metadata)
//! ```

mod account;
mod cache;
mod digest;
mod garbage;
mod incoming;
mod memos;
mod metadata_change;
mod open_objects;
mod party;
mod readers;

mod sending;

mod fs;

mod watching;

mod admission;
mod backup;
mod fetch;
mod gc;
mod memo_reads;
mod object;
mod user_limits;
mod write;

mod append;
mod coalesce;
mod delete;
mod file;
mod layout;
mod multipart;

mod copied_bytes;

pub use account::{Account, CountedBody, ThrottleCounts};
pub use cache::{PIECE_BYTES, Stats};
pub use cairn_blocks::{NodeCounts, Peers, TimedCount, Usage};
pub use cairn_meta::master::Stats as MasterStats;
pub use cairn_meta::session::MasterSilence;
pub use cairn_meta::session::client::Stats as SessionStats;
pub use cairn_meta::{RowWatch, Stats as MetaStats, WireVerb, ops, order, rows, seeing};
pub use coalesce::CoalesceStep;
pub use digest::{Digester, Digests, combine_checksums, hex};
pub use file::{FilePosition, FileWriter, Over, PACKED_RUNS, Piece, UploadedRuns};
pub use fs::{Config, Fs, end_own_sessions};
pub use gc::GcReport;
pub use incoming::{AdmissionRequest, QuotaHold};
pub use layout::{BlockReader, Layout};
pub use memos::MemoVerb;
pub use metadata_change::MetadataChange;
pub use multipart::{CompletedUpload, CopiedPart, PartSource};
pub use object::{ByteStream, Object};
pub use party::party_of;
pub use sending::Sending;
pub use watching::Watching;
pub use write::{BodyWriter, PutRequest, WrittenBody};
