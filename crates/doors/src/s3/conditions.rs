//! `If-Match` and similar headers.

use cairn_base::Timestamp;
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use http::header::{HeaderMap, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use s3s::S3Result;

use super::error::invalid;
use super::headers::text;

/// Returns the conditions of a request that reads.
pub(super) fn of_read(headers: &HeaderMap) -> S3Result<Conditions> {
    Ok(Conditions {
        if_modified_since: date(headers, IF_MODIFIED_SINCE.as_str()),
        if_unmodified_since: date(headers, IF_UNMODIFIED_SINCE.as_str()),
        ..of_change(headers)?
    })
}

/// Returns the conditions of a request that changes.
pub(super) fn of_change(headers: &HeaderMap) -> S3Result<Conditions> {
    Ok(Conditions {
        if_match: etags(headers, IF_MATCH.as_str(), false)?,
        if_none_match: etags(headers, IF_NONE_MATCH.as_str(), true)?,
        ..Conditions::default()
    })
}

/// Returns the conditions on the source of a copy.
pub(super) fn of_source(headers: &HeaderMap) -> S3Result<Conditions> {
    Ok(Conditions {
        if_match: etags(headers, "x-amz-copy-source-if-match", false)?,
        if_none_match: etags(headers, "x-amz-copy-source-if-none-match", true)?,
        if_modified_since: date(headers, "x-amz-copy-source-if-modified-since"),
        if_unmodified_since: date(headers, "x-amz-copy-source-if-unmodified-since"),
        ..Conditions::default()
    })
}

/// Returns the date of a condition. An unreadable date is no condition (RFC 9110).
pub(super) fn date(headers: &HeaderMap, name: &str) -> Option<Timestamp> {
    let text = headers.get(name)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok().map(Timestamp::from_system_time)
}

/// Reads a list of ETags or `*`. A weak ETag matches nothing if the comparison is strong.
fn etags(headers: &HeaderMap, name: &str, weak: bool) -> S3Result<Option<EtagMatch>> {
    let Some(list) = text(headers, name)? else { return Ok(None) };
    if list.trim() == "*" {
        return Ok(Some(EtagMatch::Any));
    }
    let mut etags = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let (is_weak, tail) = match rest.strip_prefix("W/") {
            Some(tail) => (true, tail),
            None => (false, rest),
        };
        let (etag, tail) = match tail.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once('"')
                .ok_or_else(|| invalid(format!("{name}: a quote is missing")))?,
            // Many clients omit the quotes.
            None => tail.find(',').map_or((tail, ""), |at| tail.split_at(at)),
        };
        if weak || !is_weak {
            etags.push(etag.trim().to_owned());
        }
        rest = tail.trim_start();
        if !rest.is_empty() {
            rest = rest
                .strip_prefix(',')
                .ok_or_else(|| invalid(format!("{name}: a comma is missing")))?
                .trim_start();
        }
    }
    Ok(Some(EtagMatch::OneOf(etags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, weak: bool) -> Option<EtagMatch> {
        let headers = [(IF_MATCH, text.parse().unwrap())].into_iter().collect();
        etags(&headers, "if-match", weak).unwrap()
    }

    #[test]
    fn lists_of_etags() {
        let list = |etags: &[&str]| {
            Some(EtagMatch::OneOf(etags.iter().map(|etag| (*etag).to_owned()).collect()))
        };
        assert_eq!(parse("*", false), Some(EtagMatch::Any));
        assert_eq!(parse("\"a\"", false), list(&["a"]));
        assert_eq!(parse("a", false), list(&["a"]));
        assert_eq!(parse("\"a,b\" , \"c\",d", false), list(&["a,b", "c", "d"]));
        assert_eq!(parse("W/\"a\", \"b\"", false), list(&["b"]));
        assert_eq!(parse("W/\"a\", \"b\"", true), list(&["a", "b"]));
        assert_eq!(parse("\"\"", true), list(&[""]));
    }

    #[test]
    fn what_is_no_list() {
        for text in ["\"a", "\"a\"b", "\"a\" \"b\""] {
            let headers = [(IF_MATCH, text.parse().unwrap())].into_iter().collect();
            assert!(etags(&headers, "if-match", false).is_err(), "{text}");
        }
    }
}
