//! What a member of several masters keeps on its disk.

mod entries_and_records;
mod io_errors_at_every_call;
mod model;
mod power_cuts;
mod snapshots;
mod store;
