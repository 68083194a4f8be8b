//! The S3 door.
//!
//! It is not: a place where rights are decided (the operations of the store do that), a keeper of
//! keys, or a second implementation of anything: what S3 cannot say in the store's words it
//! refuses.
//!
//! ```text
//!   request ──► address, query ──► verdict ──► headers, operation ──► get_object ──► Fs
//!                 (decoded once)   (Caller,     (nothing unknown  └──► s3s: XML ──► verbs ──► Fs
//!                                   body mode)   is passed over)
//! ```
//!
//! The `s3s` library reads and writes XML and routes; it gets requests without credentials, after
//! the verdict, and its own verification is not used: it would take other algorithms and services
//! in a signature, unsigned headers, and would hold a whole chunk in memory. A request for an
//! object does not pass through it at all.

mod address;
mod attributes;
mod checksums;
mod conditions;
mod counted;
mod document;
mod door;
mod error;
mod get_object;
mod headers;
mod integrity;
mod library;
mod operation;
mod owner;
mod payload;
mod query;
mod range;
mod sigv2;
mod sigv4;
mod store;
mod table;
mod tags;
mod upload_id;
mod verbs;
mod verdict;
mod xml;

use std::sync::Arc;

use cairn_fs::Fs;

pub use door::S3Door;
pub use headers::Classes;

use crate::admit::Admit;
use crate::metrics::Metrics;

/// How the door presents itself.
#[derive(Clone, Debug, Default)]
pub struct S3Config {
    /// Names of this server below which buckets are found as `<bucket>.<domain>`.
    pub domains: Vec<String>,
    /// The region in signatures and replies; empty to take any and to say `us-east-1`.
    pub region: String,
    /// What becomes of storage classes that are asked for.
    pub classes: Classes,
}

/// The door, to be served by [`crate::serve::serve`].
pub fn service(fs: Fs, admit: Arc<Admit>, metrics: &Metrics, config: S3Config) -> S3Door {
    S3Door::new(fs, admit, metrics, config)
}
