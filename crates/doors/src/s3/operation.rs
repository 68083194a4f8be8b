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
    /// Left unread: the reply is all that matters.
    Unread,
    /// Empty.
    None,
    Xml {
        /// The elements right below the root.
        elements: &'static [&'static str],
        /// Whether checksums in headers are of an object that the body describes.
        is_of_object: bool,
    },
    /// The bytes of an object or part.
    Bytes,
}

impl Input {
    /// XML of these elements, with its own checksums.
    pub(super) const fn xml(elements: &'static [&'static str]) -> Input {
        Input::Xml { elements, is_of_object: false }
    }

    /// Whether a client has something to say of a body.
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
    /// As S3 has it, and in metrics and logs.
    pub(super) name: &'static str,
    /// The action of S3 that a caller needs the right to.
    pub(super) action: Action,
    pub(super) method: &'static str,
    pub(super) level: Level,
    /// Parameters that make it this operation.
    pub(super) wanted: &'static [&'static str],
    /// Parameters it understands besides.
    pub(super) allowed: &'static [&'static str],
    /// Headers it honours, besides those of [`SIGNED`] and [`BODY`] where it has a body. A `*` at
    /// the end stands for any further characters.
    pub(super) headers: &'static [&'static [&'static str]],
    /// Whether `x-amz-copy-source` makes it this operation.
    pub(super) copies: bool,
    pub(super) input: Input,
    pub(super) verb: Verb,
}

/// Headers of a signature, of the framing of a body and of logs. They are read before it is known
/// which operation is meant.
pub(super) const SIGNED: &[&str] = &[
    "x-amz-api-version",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-request-payer",
    "x-amz-security-token",
    "x-amz-user-agent",
];
/// Of every request for a bucket or object.
pub(super) const OWNER: &str = "x-amz-expected-bucket-owner";
/// The headers of a client about a body.
pub(super) const BODY: &[&str] = &[
    "content-md5",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
];

impl Operation {
    /// Whether it honours a header.
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

    /// Requests that only read may pass over conditions and ranges (RFC 9110).
    pub(super) fn is_change(&self) -> bool {
        !matches!(self.method, "GET" | "HEAD")
    }
}
