//! Which operation a request asks for: its method, what it names and its query parameters.
//!
//! A parameter names a sub-resource in S3 (`?retention`, `?lifecycle`). One that the table does not
//! have is never passed over: `PUT /bucket/key?retention` must not replace the object.

use http::Method;
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::{invalid, not_implemented, refuse};
use super::query::Query;
use super::table::{Level, Operation, TABLE};

/// Finds the operation; takes parameters without meaning out of the query.
pub(super) fn resolve(
    method: &Method,
    address: &Address,
    query: &mut Query,
    copies: bool,
) -> S3Result<&'static Operation> {
    let level = match address {
        Address::Root => Level::Service,
        Address::Bucket(_) => Level::Bucket,
        Address::Object { .. } => Level::Object,
    };
    let at_home = TABLE.iter().filter(|op| {
        op.method == method.as_str()
            && op.level == level
            && op.copies == (copies && takes_source(op))
    });
    let operation = at_home
        .filter(|op| op.wanted.iter().all(|name| query.has(name)))
        .max_by_key(|op| op.wanted.len());
    let Some(operation) = operation else { return Err(unknown_method(method)) };
    // What SDKs add to tell operations apart in logs.
    query.retain(|name| name != "x-id");
    for (name, _) in query.pairs() {
        let name = &name.as_str();
        if !operation.wanted.contains(name) && !operation.allowed.contains(name) {
            return Err(not_implemented(format!("{method} with the parameter {name}")));
        }
    }
    if operation.name == "ListObjectsV2" && query.get("list-type") != Some("2") {
        return Err(invalid("list-type must be 2"));
    }
    Ok(operation)
}

fn takes_source(operation: &Operation) -> bool {
    operation.copies || matches!(operation.name, "PutObject" | "UploadPart")
}

fn unknown_method(method: &Method) -> s3s::S3Error {
    let known = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];
    match known.contains(method) {
        true => not_implemented(format!("{method} here")),
        false => refuse(S3ErrorCode::MethodNotAllowed, format!("{method} is not allowed")),
    }
}
