//! The roles of a cluster's nodes: `cairn master`, `cairn chunkserver`, `cairn gateway`.

pub mod chunkserver;
mod files;
pub mod gateway;
mod listen;
pub mod master;
mod this;

pub use this::{ThisNode, host_and_port};
