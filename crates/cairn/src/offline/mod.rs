//! Commands on a data directory that no server uses.

pub mod frozen_disk;
pub mod fsck;
pub mod key;
pub mod scrub;
pub mod store;
