//! Masters that keep their metadata together: the way of their messages, and which of them keep
//! them.
//!
//! It is not: the log, elections, leases (`engine/raft` of `meta`).
//!
//! ```text
//!   Member ──► WirePeers ══ cairn-wire, method 40 ══► ControlService ──► Member
//!   Controller ──► seats: masters of the map, who is up ──► voters and learners ──► Member
//! ```

mod ask;
mod peers;

pub use crate::control::{Entered, MemberReport, Seats, best, caught_up, copies, seats};
pub use ask::{Asked, ask_all, masters_of, patience};
pub use peers::WirePeers;
