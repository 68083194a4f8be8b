//! Requests of operators and their programs to the master that serves, over gRPC in the same TLS as
//! between nodes.
//!
//! It is not: the messages of nodes to each other while they run (`control`), an interface for
//! users.
//!
//! ```text
//!   cairn cluster ──► AdminClient ══ HTTP/2 ══► AdminServer ──► Controller
//!                        │  finds the master that serves            │ status, edit, issue
//! ```
//!
//! `proto/cairn/admin/v1/admin.proto` is the published interface.

mod client;
mod code;
mod form;
mod server;

pub use client::AdminClient;
pub use server::AdminServer;

/// Types generated from the published interface by `cargo xtask proto`.
#[allow(clippy::all, clippy::unwrap_used)]
#[rustfmt::skip]
pub mod proto;
