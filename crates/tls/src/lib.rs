//! TLS: whom a client trusts, and how the handshake of a peer is verified.
//!
//! It is not: what nodes of a cluster know each other by (`identity` of `cluster` decides on their
//! certificates, as [`AdmitServer`] and [`AdmitClient`]), nor the certificates that doors show.
//!
//! ```text
//!   a certificate ──► AdmitServer, AdmitClient: whose it is ──┐
//!   a handshake ────► Verifier: its key has signed ───────────┴──► admitted
//! ```

pub mod certificate;

mod verifier;

mod named;

mod trust;

pub use named::Authorities;
pub use trust::{Trust, authorities, client_config};
pub use verifier::{AdmitClient, AdmitServer, Verifier};
