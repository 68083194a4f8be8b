//! Finds the row of the table for a request, by its method, its target and its query.
//!
//! A parameter names a sub-resource in S3 (`?retention`, `?lifecycle`). A sub-resource that the
//! table does not have is never ignored: `PUT /bucket/key?retention` must not replace the object.

use http::Method;
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::{bad_request, invalid, not_implemented, refuse};
use super::features;
use super::operation::{Input, Level, Operation};
use super::query::Query;
use super::table::TABLE;

/// Finds the operation and its place in the table; takes parameters without meaning from the query.
pub(super) fn resolve(
    method: &Method,
    address: &Address,
    query: &mut Query,
    copies: bool,
) -> S3Result<(usize, &'static Operation)> {
    let level = match address {
        Address::Root => Level::Service,
        Address::Bucket(_) => Level::Bucket,
        Address::Object { .. } => Level::Object,
    };
    for (name, _) in query.pairs() {
        check_place(method, level, name)?;
    }
    let at_home = TABLE.iter().enumerate().filter(|(_, op)| {
        op.method == method.as_str()
            && op.level == level
            && op.copies == (copies && takes_source(op))
    });
    let found = at_home
        .filter(|(_, op)| op.wanted.iter().all(|name| query.has(name)))
        .max_by_key(|(_, op)| op.wanted.len());
    let Some((place, operation)) = found else {
        return Err(unknown_method(method, level, query));
    };
    // A parameter with which SDKs distinguish operations in logs.
    query.retain(|name| name != "x-id");
    for (name, _) in query.pairs() {
        let name = &name.as_str();
        if !operation.wanted.contains(name) && !operation.allowed.contains(name) {
            return Err(features::unknown_parameter(method, name));
        }
    }
    if operation.name == "ListObjectsV2" && query.get("list-type") != Some("2") {
        return Err(invalid("list-type must be 2"));
    }
    Ok((place, operation))
}

/// Sub-resources that S3 has for buckets only, and for objects only.
const OF_BUCKETS: &[&str] = &[
    "accelerate",
    "analytics",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "list-type",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "versioning",
    "versions",
    "website",
];
const OF_OBJECTS: &[&str] = &[
    "attributes",
    "legal-hold",
    "partNumber",
    "restore",
    "retention",
    "select",
    "torrent",
    "uploadId",
];

/// Refuses a sub-resource where S3 has none of that name: it is no feature that is not there.
fn check_place(method: &Method, level: Level, name: &str) -> S3Result<()> {
    let is_of_buckets = OF_BUCKETS.contains(&name) || (name == "uploads" && method == Method::GET);
    let is_of_objects = OF_OBJECTS.contains(&name) || (name == "uploads" && method == Method::POST);
    match level {
        Level::Object if name == "uploads" && method == Method::GET => {
            Err(bad_request("Key is not expected for the GET method ?uploads subresource"))
        }
        Level::Bucket if is_of_objects => Err(bad_request("A key must be specified")),
        Level::Object if is_of_buckets => Err(misplaced(name, "an object")),
        Level::Service if is_of_buckets || is_of_objects => Err(misplaced(name, "the service")),
        _ => Ok(()),
    }
}

fn misplaced(name: &str, of: &str) -> s3s::S3Error {
    refuse(S3ErrorCode::MethodNotAllowed, format!("{of} has no sub-resource {name}"))
}

fn takes_source(operation: &Operation) -> bool {
    operation.copies || operation.input == Input::Bytes
}

fn unknown_method(method: &Method, level: Level, query: &Query) -> s3s::S3Error {
    let known = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];
    if !known.contains(method) {
        return refuse(S3ErrorCode::MethodNotAllowed, format!("{method} is not a method of S3"));
    }
    match level {
        Level::Service => {
            refuse(S3ErrorCode::MethodNotAllowed, format!("{method} on the list of buckets"))
        }
        Level::Bucket if query.is_empty() && method == Method::POST => features::form_uploads(),
        Level::Bucket | Level::Object => match query.pairs().first() {
            Some((name, _)) => features::unknown_parameter(method, name),
            None => not_implemented(format!("{method} on this resource")),
        },
    }
}
