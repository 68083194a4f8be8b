//! The doors: the protocols through which users reach the store.
//!
//! This crate does not decide on rights (the operations of the store do that), builds no keys of
//! metadata, and sees no blocks.
//!
//! ```text
//!   socket ──► serve (TLS, limits, shutdown) ──► admit: request ──► Caller
//!                                                          │
//!                                         http/  s3/  ◄────┘   a verb a file ──► cairn_fs::Fs
//! ```

mod content_type;
mod dates;
pub mod host;
pub mod limits;
mod pacing;
mod pulse;
mod timing;
pub mod tls;

mod places;
pub mod proxies;

mod cors;
pub mod observe;
mod room;
pub mod traffic;
mod upload;
mod witness;

pub mod metrics;
mod records;

pub mod serve;

pub mod admit;

pub mod http;
pub mod s3;

pub use places::{NoPlace, Places};
pub use records::{RecordedBody, Records};
pub use upload::{Upload, UploadError};
pub use witness::{Facts, Witness};
