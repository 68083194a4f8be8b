//! Requests of operators and their programs to the master that serves: gRPC in the TLS of all
//! nodes.
//!
//! It is not: what nodes say to each other while they run (`control`), an interface for users.
//!
//! ```text
//!   cairn cluster ──► AdminClient ══ HTTP/2 ══► AdminServer ──► Controller
//!                        │  of the masters, the one that serves     │ status, edit, issue
//! ```
//!
//! `proto/cairn/admin/v1/admin.proto` is the interface, and what is published of it.

mod client;
mod code;
mod form;
mod server;

pub use client::AdminClient;
pub use server::AdminServer;

/// Made of the published interface by `cargo xtask proto`.
#[allow(clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
pub mod proto;
