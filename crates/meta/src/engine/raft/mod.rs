//! Metadata that several masters keep together: each has a member with a log of entries and votes,
//! and the rows of the entries that are applied. The consensus library `openraft` decides on both;
//! its types are used in here only.
//!
//! ```text
//!   a master ──► RaftEngine ──► Member ──► openraft ──► log.rs, state_machine.rs ──► MemberStore
//!                                 │            └──────► network.rs ──► Peers ──► other members
//!                                 └──► watch.rs: heartbeats, elections
//!
//!   vote, append ──► record in the ring, one fdatasync        (entries may yet be replaced)
//!   apply ─────────► row store ──► visible                    (committed entries only)
//!                        │
//!                        └──► checkpoint: rows, and a mark: vote, last entry, members
//! ```
//!
//! Reasons: docs/decisions/0033. Bytes on the disk: docs/format-engine.md; bytes of messages:
//! docs/format-members.md.

mod apply;
mod check;
mod commit;
mod compared_rows;
mod comparison;
mod contact;
pub mod digest;
mod engine;
pub mod entry;
mod frozen;
mod handover;
mod index;
mod log;
mod member;
mod member_record;
pub mod message;
mod network;
mod outgoing;
mod progress;
mod purge;
mod receive;
mod receiving;
mod record;
mod recover;
mod scrub;
mod scrub_results;
mod shared;
mod snapshot;
mod start;
mod state_machine;
mod status;
mod store;
mod store_log;
mod survive;
mod timing;
mod transfers;
mod types;
mod verdict;
mod watch;
mod work;

pub use self::apply::Outcome;
pub use self::engine::RaftEngine;
pub use self::frozen::FrozenMember;
pub use self::member::{Lead, Member};
pub use self::member_record::Membership;
pub use self::outgoing::{Outgoing, SnapshotState};
pub use self::progress::Stall;
pub use self::record::Vote;
pub use self::recover::BadEnd;
pub use self::scrub_results::Damage;
pub use self::shared::{Peers, Seams};
pub use self::snapshot::Incoming;
pub use self::status::MemberStatus;
pub use self::store::MemberStore;
pub use self::store_log::LeaderEntries;
pub use self::timing::Timing;
