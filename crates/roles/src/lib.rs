//! What the processes of a store do, over the seams (disk, clock, randomness, threads, network):
//! how a master, a chunkserver, a gateway and a server are put together, and the loops of their
//! duties.
//!
//! It is not: command lines, directories, keys, TLS, sockets, doors, signals. Who runs a role gives
//! it those: `cairn` those of a machine, and the simulation (`crates/sim/tests`) simulated ones.
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
pub use node::{Node, beat_of, secrets};
