//! The parts of a request.

use http::Method;
use http::header::{EXPECT, HeaderMap, HeaderName, RANGE};

use super::address::{self, Address};
use super::document::ErrorContext;
use super::query::Query;
use super::sigv4;
use crate::serve::Remote;
use crate::witness::Witness;

pub(super) struct Parts {
    pub(super) from: Remote,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) host: Vec<u8>,
    pub(super) address: Address,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) request_id: String,
    pub(super) host_id: String,
    pub(super) witness: Witness,
}

impl Parts {
    /// Returns whether the client sends its body only after it is asked to.
    pub(super) fn is_waiting(&self) -> bool {
        self.headers.contains_key(EXPECT)
    }

    /// Returns the parts of this request for an error document.
    pub(super) fn told(&self) -> ErrorContext {
        let mut names = self.headers.keys().map(HeaderName::as_str);
        let of_source = names.any(|name| name.starts_with("x-amz-copy-source-if-"));
        let range = self.headers.get(RANGE).or(self.headers.get("x-amz-copy-source-range"));
        ErrorContext {
            resource: self.address.resource(),
            request_id: self.request_id.clone(),
            host_id: self.host_id.clone(),
            bucket: self.address.bucket().map(str::to_owned),
            key: self.address.key().map(str::to_owned),
            upload: self.query.get("uploadId").map(str::to_owned),
            range: range.and_then(|range| range.to_str().ok()).map(str::to_owned),
            of_source,
        }
    }

    /// Returns the full URL of the object, by the address that this request used.
    pub(super) fn url(&self) -> Option<String> {
        let Address::Object { bucket, key } = &self.address else { return None };
        let scheme = if self.from.tls { "https" } else { "http" };
        let host = std::str::from_utf8(&self.host).ok().filter(|host| !host.is_empty())?;
        let mut url = format!("{scheme}://{host}/");
        let path = address::decode(&self.path).ok()?;
        if !self.address.is_by_host(&path) {
            url.push_str(bucket);
            url.push('/');
        }
        sigv4::encode_into(&mut url, key.as_bytes(), false);
        Some(url)
    }
}
