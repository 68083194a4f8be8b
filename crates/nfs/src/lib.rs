//! The NFS door: version 3 of NFS, with MOUNT and a portmapper, over TCP.
//!
//! This crate is not POSIX (that is `cairn-posix`), and it does not decide on rights: the store's
//! operations do, for the user that an export acts as. It has no locks, no Kerberos and no version
//! 4.
//!
//! ```text
//!   client ── record ──► connection ── call ──► dispatch ──► a procedure ── call ──► posix
//!                            ▲                                  │
//!                            │                    handle ─► export ─► its user, and the place
//!   client ◄── replies ──────┘  in memory: at once; else: from a task, in any order
//! ```
//!
//! Bytes of clients are read by `xdr`, `record` and `rpc`, which allocate for bytes that have
//! arrived, not for those that are announced. A procedure is a function in a file named after its
//! subject. Modules stand in floors, below. Each uses floors above it only, and none of its own.

mod limits;
mod watch;
mod xdr;

mod record;

mod rpc;

mod status;

mod attributes;
mod handle;

mod groups;
mod openings;
mod parties;
mod portmap;
mod replies;

mod load;
mod rpcbind;

mod desk;

mod files;
mod inodes;
mod listing;
mod mount;
mod names;
mod removes;
mod space;
mod subject;

mod dispatch;

mod connection;
mod datagrams;

mod server;

pub use connection::converse;
pub use desk::{Behaviour, Desk};
pub use groups::ID;
pub use load::Load;
pub use rpcbind::{RPCBIND, register};
pub use server::{Options, Sockets, serve};
pub use watch::{CallRecord, Outcome, PROCEDURES, Ran, Watch};
