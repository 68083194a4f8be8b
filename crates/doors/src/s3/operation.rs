//! One row of the table: an operation.

use std::pin::Pin;

use cairn_auth::Action;
use http::Response;
use s3s::{Body, S3Result};

use super::call::Call;

/// The level of the resource that the request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Service,
    Bucket,
    Object,
}

/// The form of a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// Left unread: only the reply matters.
    Unread,
    /// An empty body.
    None,
    Xml {
        /// The elements right below the root.
        elements: &'static [&'static str],
        /// True if checksums in headers belong to an object that the body describes.
        is_of_object: bool,
    },
    /// The bytes of an object or part.
    Bytes,
}

impl Input {
    /// Returns XML of these elements, with its own checksums.
    pub(super) const fn xml(elements: &'static [&'static str]) -> Input {
        Input::Xml { elements, is_of_object: false }
    }

    /// Returns whether headers may describe the body.
    pub(super) fn is_body(self) -> bool {
        matches!(self, Input::Xml { .. } | Input::Bytes)
    }
}

/// The function that answers a request, in `verbs`.
pub(super) type Verb = for<'a> fn(Call<'a>) -> Reply<'a>;
pub(super) type Reply<'a> = Pin<Box<dyn Future<Output = S3Result<Response<Body>>> + Send + 'a>>;

/// One row of the table.
#[derive(Debug)]
pub(super) struct Operation {
    /// The name in S3, which is also used in metrics and logs.
    pub(super) name: &'static str,
    /// The action of S3 that a caller needs the right to.
    pub(super) action: Action,
    pub(super) method: &'static str,
    pub(super) level: Level,
    /// Parameters that select this operation.
    pub(super) wanted: &'static [&'static str],
    /// Further parameters that it understands.
    pub(super) allowed: &'static [&'static str],
    /// Headers that it honours, in addition to those of [`SIGNED`], and of [`BODY`] if it has a
    /// body. A `*` at the end stands for any further characters.
    pub(super) headers: &'static [&'static [&'static str]],
    /// True if `x-amz-copy-source` selects this operation.
    pub(super) copies: bool,
    pub(super) input: Input,
    pub(super) verb: Verb,
}

/// Headers of a signature, of the framing of a body and of logs. They are read before the operation
/// is known.
pub(super) const SIGNED: &[&str] = &[
    "x-amz-api-version",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-request-payer",
    "x-amz-security-token",
    "x-amz-user-agent",
];
/// Header that every request for a bucket or object may have.
pub(super) const OWNER: &str = "x-amz-expected-bucket-owner";
/// Headers with which a client describes a body.
pub(super) const BODY: &[&str] = &[
    "content-md5",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-sha512",
    "x-amz-checksum-md5",
    "x-amz-checksum-xxhash64",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash128",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
];

impl Operation {
    /// Returns whether it honours a header.
    pub(super) fn honours(&self, name: &str) -> bool {
        let matches = |known: &&str| match known.strip_suffix('*') {
            Some(start) => name.strip_prefix(start).is_some_and(|rest| !rest.is_empty()),
            None => name == *known,
        };
        SIGNED.contains(&name)
            || (self.level != Level::Service && name == OWNER)
            || (self.input.is_body() && BODY.contains(&name))
            || self.headers.iter().any(|group| group.iter().any(&matches))
    }

    /// Returns whether it changes something. Requests that only read may ignore conditions and
    /// ranges (RFC 9110).
    pub(super) fn is_change(&self) -> bool {
        !matches!(self.method, "GET" | "HEAD")
    }
}
