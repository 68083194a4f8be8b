//! Masters that keep their metadata together: the transport of their messages, and the choice of
//! those that keep them.
//!
//! It is not: the log, elections, leases (`engine/raft` of `meta`).
//!
//! ```text
//!   Member ──► WirePeers ══ cairn-wire, method 40 ══► ControlService ──► Member
//!   Controller ──► Seating: masters of the map, who is up ──► voters and learners ──► Member
//! ```

mod ask;
mod peers;

pub use crate::control::{
    DamageReport, EnterReply, MemberReport, RenumberReply, Roster, Seating, StallKind, StallReport,
    Standing, best, copies,
};
pub use ask::{MasterAnswer, ask_all, masters_of, patience};
pub use peers::WirePeers;
