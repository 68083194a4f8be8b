//! Files over metadata and blocks: the read and write paths, the cache of blocks, garbage.
//!
//! This crate is not a door (it knows no HTTP, XML or FUSE). It does not decide on rights
//! (operations of the metadata do), and does not know whether its blocks are local or remote.
//!
//! ```text
//!   door ──► Fs::begin ─► BodyWriter::push … finish ─► Written ─► Fs::put_object | put_part
//!            │              blocks, several at once, durable        one operation publishes them
//!            ├─► Fs::open ─► Object ─► read | send ─► stream of Bytes from cache or blocks
//!            │                 └─► layout ─► Layout::send, where there is no metadata
//!            └─► Fs::run | read (any other operation of the metadata)
//! ```

mod account;
mod cache;
mod changed;
mod digest;
mod garbage;
mod incoming;
mod memos;
mod opened;
mod party;
mod readers;

mod sent;

mod fs;

mod watching;

mod admission;
mod backup;
mod fetch;
mod gc;
mod kept;
mod limited;
mod object;
mod write;

mod append;
mod coalesce;
mod delete;
mod file;
mod layout;
mod multipart;

pub use account::{Account, CountedBody, ThrottleCounts};
pub use cache::{PIECE_BYTES, Stats};
pub use cairn_blocks::{NodeCounts, Peers, Spent, Usage};
pub use cairn_meta::master::Stats as MasterStats;
pub use cairn_meta::session::MasterSilence;
pub use cairn_meta::session::client::Stats as SessionStats;
pub use cairn_meta::{RowWatch, Stats as MetaStats, WireVerb, ops, rows, seeing};
pub use changed::Changed;
pub use coalesce::CoalesceStep;
pub use digest::{Digester, Digests, combine_checksums, hex};
pub use file::{FileWriter, Over, PACKED_RUNS, Piece, Uploaded};
pub use fs::{Config, Fs, end_own_sessions};
pub use gc::GcReport;
pub use incoming::{Held, Wanted};
pub use layout::{BlockReader, Layout};
pub use memos::Kept;
pub use multipart::{Completed, CopiedPart, PartSource};
pub use object::{ByteStream, Object};
pub use party::party_of;
pub use sent::Sending;
pub use watching::Watching;
pub use write::{BodyWriter, PutRequest, Written};
