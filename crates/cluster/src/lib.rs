//! The cluster, which makes several machines one store: the identity of nodes, and the connections
//! between them.
//!
//! It is not: the namespace (`meta`), blocks on disks (`blocks`), a consensus.
//!
//! ```text
//!   identity   who is who: keys, certificates, pins, how a node joins
//!      │
//!   wire       one multiplexed connection for each pair of nodes, over TLS
//!      │
//!   data       blocks between nodes, over HTTP in the same TLS
//!   control    who is up, the cluster map, sessions of gateways with the master
//!   members    masters that keep their metadata together: their messages, who votes
//!   admin      what operators ask the master, as gRPC in the same TLS
//!   mount      clients that are no nodes: a session and blocks, as a user of the store
//! ```

pub mod limits;

pub mod identity;

pub mod wire;

pub mod data;

pub mod control;

pub mod members;

pub mod admin;
pub mod mount;
