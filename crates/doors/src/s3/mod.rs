//! The S3 door.
//!
//! It does not decide on rights (the operations of the store do that), keeps no keys, and
//! implements nothing a second time. A request that the store cannot express is refused.
//!
//! ```text
//!   request ──► address, query ──► verdict ──► route ──► body ──► verb ──► Fs
//!                (decoded once)    (Caller,     (a row    (XML     (a file
//!                                   body mode)   of the    is       of verbs/)
//!                                                table)    read)
//! ```
//!
//! A verb is a row of `table` and a file of `verbs` of the same name. It receives a [`call::Call`]
//! and returns the reply. The `s3s` library has the types of S3 and reads and writes their XML.

mod address;
mod attributes;
mod aws_query;
mod body;
mod call;
mod checksums;
mod conditions;
mod document;
mod door;
mod error;
mod features;
mod header_rules;
mod headers;
mod integrity;
mod operation;
mod owner;
mod parts;
mod payload;
mod pending_body;
mod preflight;
mod presign;
mod query;
mod range;
mod reply;
mod rights;
mod route;
mod rules;
mod sigv2;
mod sigv4;
mod store;
mod summed;
mod table;
mod tags;
mod upload_id;
mod verbs;
mod verdict;
mod website;
mod xml;

use std::sync::Arc;

use cairn_fs::Fs;

pub use door::{S3Config, S3Door};
pub use header_rules::Classes;
pub use presign::PresignedRequest;
pub use store::PublicAcl;

use crate::admit::Admit;
use crate::metrics::DoorMetrics;

/// Returns the door, to be served by [`crate::serve::serve`].
pub fn service(fs: Fs, admit: Arc<Admit>, metrics: &DoorMetrics, config: S3Config) -> S3Door {
    S3Door::new(fs, admit, metrics, config)
}
