//! Reads headers.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use s3s::S3Result;

use super::error::bad_request;
use super::query::Query;

/// Returns the value of a header that may be given only once.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> S3Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (std::str::from_utf8(value.as_bytes()), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        (Err(_), _) => Err(bad_request(format!("the header {name} is not text"))),
        (_, Some(_)) => Err(bad_request(format!("the header {name} is given twice"))),
    }
}

/// Moves headers that SDKs put into the query of a presigned URL back; they mean the same there.
pub(super) fn unhoist(query: &mut Query, headers: &mut HeaderMap) -> S3Result<()> {
    for (name, value) in query.pairs() {
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("x-amz-") {
            continue;
        }
        let bad = || bad_request(format!("the parameter {name} cannot be a header"));
        let value = HeaderValue::from_str(value).map_err(|_| bad())?;
        let header = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| bad())?;
        if headers.get(&header).is_some_and(|present| present != value) {
            return Err(bad_request(format!(
                "{name} has different values in the query and in the header"
            )));
        }
        headers.insert(header, value);
    }
    query.retain(|name| !name.to_ascii_lowercase().starts_with("x-amz-"));
    Ok(())
}
