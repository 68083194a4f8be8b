//! The identity of a node: its key, the certificate from the cluster's authority, and the map that
//! says which key belongs to which node.
//!
//! ```text
//!   Ca ── signs ──► certificate: node, cluster, public key, 30 days
//!                        │ shown in every handshake, checked by both sides:
//!   Authority ── signature, validity, cluster ──┐
//!   Pins ─────── this node has this key ────────┴──► admitted, in its roles
//! ```
//!
//! It is not: users and their rights (that is `auth`), the store of pins and tokens (that is the
//! metadata, behind [`Pins`] and [`Tokens`]).

mod authority;
mod ca;
mod directory;
mod join;
mod key;
mod name;
mod node;
mod pins;
mod token;
mod verify;

pub use authority::{Authority, Facts, Usage};
pub use ca::Ca;
pub use directory::{Directory, DirectoryContents};
pub use join::{Desk, JoinResult};
pub(crate) use join::{check, request};
pub use key::{NodeKey, PublicKey};
pub use node::Identity;
pub use pins::{KnownNode, Pins, Tokens};
pub use token::JoinToken;
pub(crate) use verify::{Applying, ByToken, Mutual, TlsClock};
