//! POSIX over the store, for doors that serve a protocol of files: a mount of the kernel, NFS.
//!
//! This crate is not a protocol (it knows no request, no errno and no kernel), and it does not
//! decide on rights: the store's operations do.
//!
//! ```text
//!   a door ── call, with values ──► Posix ── Answer: now, soon or later ──► a door
//!                                     │
//!                        names  open  read  write  locks  list ...       one verb, one file
//!                                     │
//!        node: runs of bytes not written back ── flush, sync, 8 MiB ──► fs::FileWriter
//!
//!   fs ── something changes ──► Posix ──► Keeper: what is to be asked for again
//! ```
//!
//! Modules stand in floors, below. Each uses floors above it only, and none of its own.

mod ahead;
mod answer;
mod attributes;
mod dirt;
mod intent;
mod keeper;
mod kernel_view;
mod lock_request;
mod makers;
mod removed_directories;
mod runs;
mod watches;
mod who;
mod whole;

mod owners;

mod node;

mod handle;

mod directory;

mod files;

mod posix;

mod entry;
mod flush;
mod retain;

mod inodes;
mod list;
mod locks;
mod names;
mod ranges;
mod read;
mod removes;
mod wcc;
mod write;
mod xattr;

mod close;
mod exclusive;
mod open;
mod resume;

pub use answer::{Answer, Work};
pub use attributes::Attributes;
pub use cairn_fs::ops::for_call::{CallId, SettleOutcome};
pub use cairn_fs::ops::rename::RenameMode;
pub use cairn_fs::ops::setattr::SetTime;
pub use cairn_fs::ops::xattr::XattrMode;
pub use cairn_fs::rows::{Kind, Space as LockSpace};
pub use entry::Entry;
pub use exclusive::Verifier;
pub use handle::Descriptor;
pub use inodes::{Changes, Rights, Space};
pub use intent::Intent;
pub use keeper::{Keeper, Nobody};
pub use list::{Name, Page};
pub use lock_request::{LockKind, LockRequest};
pub use locks::{Holder, LockOutcome, Patience};
pub use names::{LookupReply, Mode};
pub use open::OpenFile;
pub use posix::{Options, Posix, Stats};
pub use ranges::Allocation;
pub use read::{Sought, Source};
pub use resume::{Part, Resumable};
pub use wcc::Around;
pub use who::{Attempt, Step, Who};
pub use write::Writing;
