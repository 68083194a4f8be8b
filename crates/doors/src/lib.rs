//! The doors: the protocols by which users come in.
//!
//! It is not: a place where rights are decided (the operations of the store do that), where keys
//! of metadata are built or where blocks are seen.
//!
//! ```text
//!   socket ──► serve (TLS, limits, shutdown) ──► admit: request ──► Caller
//!                                                          │
//!                                         http/  s3/  ◄────┘   a verb a file ──► cairn_fs::Fs
//! ```

pub mod admit;
mod host;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod observe;
mod pulse;
mod room;
pub mod s3;
pub mod serve;
mod timing;
pub mod tls;
mod upload;

pub use upload::{Upload, UploadError};
