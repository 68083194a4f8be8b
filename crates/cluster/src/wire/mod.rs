//! Connections between nodes: one for each pair, multiplexed, with requests in both directions.
//!
//! It is not: a way to move blocks (that is HTTP), a place that knows what a method means.
//!
//! ```text
//!   tasks ──► Peer::call ──► slots, outbox ─┐                 ┌─► Service::call ──► reply
//!                                           driver ══ link ══ driver
//!   reply ◄── Service::call ◄───────────────┘                 └─ slots, outbox ◄── Peer::call
//! ```
//!
//! `link` is the seam to the network; [`tls`] is the network that nodes use.

mod connect;
mod desk;
mod driver;
pub mod frame;
mod hello;
mod join;
mod link;
mod outbox;
mod peer;
mod program;
mod reconnect;
mod refusal;
mod refusals;
mod serve;
mod service;
mod slots;
pub mod tls;

pub use connect::{Terms, accept, connect};
pub use driver::KeepAlive;
pub use hello::{MAGIC, VERSION_MAX, VERSION_MIN, Window, lowest, own_program};
pub use join::join;
pub use link::{
    Dial, Handshake, Link, Listen, PeerIdentity, Required, Standing, Stream, Taker, require_none,
};
pub use outbox::Payload;
pub use peer::{CallFailure, Peer, PeerInfo};
pub use program::{FormatRange, NodeProgram};
pub use reconnect::{Reconnect, Retry};
pub use serve::serve;
pub use service::{NoService, Service};
