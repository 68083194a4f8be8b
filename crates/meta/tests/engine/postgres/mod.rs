//! What the engine on PostgreSQL must survive, on a database of these tests' own.

mod cuts;
mod failover;
mod kills;
mod proxy;
mod refusals;
pub mod server;
mod tls;
