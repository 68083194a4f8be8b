//! The faults that the engine on PostgreSQL must survive, on a database of these tests' own.

mod cuts;
mod failover;
mod gate;
mod kills;
mod leases;
mod proxy;
mod refusals;
pub mod server;
mod standbys;
mod tls;
