//! The NFS door: version 3 of NFS, with MOUNT and a portmapper, over TCP.
//!
//! It is not: POSIX (that is `cairn-posix`), nor does it decide on rights: the store's operations
//! do, for the user as whom an export acts. It knows no locks, no Kerberos and no version 4.
//!
//! ```text
//!   client ── record ──► connection ── call ──► dispatch ──► a procedure ── call ──► posix
//!                            ▲                                  │
//!                            │                    handle ─► export ─► whom it acts as, and where
//!   client ◄── replies ──────┘  there now: at once; later: from a task, in any order
//! ```
//!
//! Bytes of clients are read by `xdr`, `record` and `rpc`, which allocate for what came, not for
//! what is announced. A procedure is a function of a file named after what it is about. Modules
//! stand in floors, below. Each uses floors above it only, and none of its own.

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

mod asked;
mod files;
mod inodes;
mod listing;
mod mount;
mod names;
mod removes;
mod space;

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
pub use watch::{Ended, Outcome, PROCEDURES, Ran, Watch};
