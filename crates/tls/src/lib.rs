//! TLS: the authorities that a client trusts, and the verification of a peer's handshake.
//!
//! It is not: the identity of nodes in a cluster (`identity` of `cluster` decides on their
//! certificates, as [`AdmitServer`] and [`AdmitClient`]), nor the certificates that doors show.
//!
//! ```text
//!   a certificate ──► AdmitServer, AdmitClient: whose it is ──┐
//!   a handshake ────► Verifier: its key has signed ───────────┴──► admitted
//! ```

pub mod certificate;

mod verifier;

mod authority_file;

mod trust;

pub use authority_file::Authorities;
pub use trust::{Trust, authorities, client_config};
pub use verifier::{AdmitClient, AdmitServer, Verifier};
