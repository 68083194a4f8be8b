//! Commands on a data directory that no server uses.

pub mod frozen;
pub mod fsck;
pub mod key;
pub mod scrub;
pub mod store;
