//! A request, in the form in which it is signed.

use http::Method;
use http::header::HeaderMap;

use crate::s3::query::Query;

/// The parts of a request that may be signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// Path as it is in the request line, and decoded.
    pub(crate) path: &'a str,
    pub(crate) decoded_path: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) host: &'a [u8],
}
