//! Roles of a cluster's nodes: `cairn master`, `cairn chunkserver` and `cairn gateway`.

pub mod chunkserver;
mod files;
pub mod gateway;
mod insight;
mod listen;
mod machine;
pub mod master;
mod process_facts;
mod refill;
mod status;
mod this;

pub use machine::{Disk, Machine, make_directory};
pub use this::{ThisNode, directory_of, host_and_port};
