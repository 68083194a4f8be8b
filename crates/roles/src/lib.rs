//! The processes of a store, over the seams (disk, clock, randomness, threads, network). This crate
//! assembles a master, a chunkserver, a gateway and a server, with the loops of their duties.
//!
//! It has no command lines, directories, keys, TLS, sockets, doors or signals. The program that
//! runs a role provides the seams: `cairn` those of a machine, and the simulation
//! (`crates/sim/tests`) simulated ones.
//!
//! ```text
//!      cairn master, chunkserver, gateway, server        simulated hosts
//!                         \                               /
//!              [ master ]  [ chunkserver ]  [ gateway ]  [ server ]
//!                    \        |      \          |          /
//!                   [ duties ]   [ copies ]   [ node ]
//!                         |           |          |
//!                 fs, sessions   data::repair   Agent, Pool
//! ```
//!
//! Modules stand in floors, below. Each uses floors above it only, and none of its own.

mod node;

mod copies;
pub mod duties;

pub mod chunkserver;
pub mod gateway;
pub mod master;
pub mod server;

pub use duties::Pace;
pub use node::{Node, beat_of, enter, secrets};
