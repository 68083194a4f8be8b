//! Sessions: how a process on another machine uses a master as if it were its own.
//!
//! ```text
//!   gateway                                          master
//!   Client::read ── leased rows, or ── Read ─────►   executor ── rows, leased ──► back
//!   Client::run  ──────────────────── Run ───────►   executor, exactly once
//!             or ──────────────────── Execute ───►   executor, answered before it is durable:
//!                                                    kept, and sent again to the next master;
//!                                                    see docs/decisions/0015-executed.md
//!   post: on its own ── RunPosted, later ────────►   executor, in their order; only in
//!                                                    directories that are delegated to it: see
//!                                                    docs/decisions/0016-delegated-directories.md
//!   leased rows  ◄── Recall ──────────────────────   before a change is acknowledged
//!                ─── Acknowledge ────────────────►
//!                ─── Renew, every third of a lease ►
//! ```
//!
//! The messages are defined here, and carried by implementors of [`MasterLink`] and [`Dialer`]. The
//! promise: a row in [`client`] is what the master would answer now, or the row is not used. It
//! rests on three things. The executor grants and recalls in the order of operations
//! (`master/leases.rs`). A change is acknowledged only when all holders of the changed rows have
//! given them up. And a session that did not renew in time counts itself lapsed before the master
//! does: it counts from the time when it sent the renewal, the master from the time when it
//! answered.

pub mod client;
mod connection;
mod kept_operations;
mod lease;
mod link;
mod messages;
mod operation;
mod posted_operations;
mod rows;
mod serving;
mod slots;
mod step;
mod unknown;

pub use link::{Dialed, Dialer, LostCall, MasterLink, MasterSilence};
pub use messages::*;
pub use serving::{OwnMaster, Serving};
