//! Information between nodes and the master that serves: beats, the map, who is admitted.
//!
//! It is not: the metadata (sessions go over the same connections, `meta` says what they mean), the
//! path of blocks (`data`).
//!
//! ```text
//!   node                                            master
//!   Agent ──── beat, twice a second ──────────────► Controller ── who is up ──► plan ──► map
//!     ▲  ◄──── the map, if there is a newer one ───     │                                 │
//!     └─ map: groups, addresses, pins                   └──── operations of `meta` ◄──────┘
//! ```

mod agent;
pub mod balance;
mod callers;
mod checking;
mod controller;
mod degraded_names;
mod disk_faults;
mod edit;
pub mod forecast;
mod framing;
mod fsck;
mod fsck_orders;
mod keeper;
mod master_watch;
pub mod messages;
mod paced_snapshot;
pub mod plan;
mod recalls;
mod report;
mod roster;
mod scrubbing;
mod seating;
mod seats;
mod service;
mod shares;
mod silence;
mod status;
mod working;

pub(crate) use agent::SessionLink;
pub use agent::{Agent, Epochs, NodeView, Recalls};
pub use balance::Move;
pub use controller::{Controller, ServingMaster, Settings};
pub use edit::Edit;
pub use framing::join;
pub(crate) use framing::split;
pub use keeper::MapKeeper;
pub(crate) use recalls::{forward, relay};
pub use report::{
    DamageReport, EnterReply, MemberReport, RenumberReply, StallKind, StallReport, best, copies,
};
pub use seating::{Roster, Seating};
pub use seats::{HandOver, Standing};
pub use service::ControlService;
pub use shares::shares;
pub use status::{NodeStatus, SessionStatus, Status};
