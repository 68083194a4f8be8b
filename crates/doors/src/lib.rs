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

mod content_type;
mod dates;
pub mod host;
pub mod limits;
mod paced;
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
