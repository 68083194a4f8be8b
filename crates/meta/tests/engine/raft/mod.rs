//! A member of several masters: its disk, and three of them together.

mod all_members_die;
mod changes;
mod comparison;
mod damage;
mod directory;
mod entries_and_records;
pub mod group;
mod handover;
mod io_errors_at_every_call;
mod members;
mod messages;
mod model;
mod power_cuts;
mod snapshots;
mod store;
mod two_snapshots;
