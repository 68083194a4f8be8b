//! The roles of a cluster's nodes: `cairn master`, `cairn chunkserver`, `cairn gateway`, and all of
//! them on one machine, `cairn node`.

pub mod chunkserver;
mod files;
pub mod gateway;
mod listen;
pub mod machine;
pub mod master;
mod status;
mod this;
mod told;

pub use machine::directory_of;
pub use this::{ThisNode, host_and_port};
