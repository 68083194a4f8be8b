//! The query of a request, decoded once.

use std::str::FromStr;

use percent_encoding::percent_decode;
use s3s::{S3ErrorCode, S3Result};

use super::error::{invalid, refuse};
use crate::limits::QUERY_PARAMETERS;

/// Name and value pairs as sent. No name occurs twice: S3 has no parameter that may.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(super) fn parse(query: Option<&str>) -> S3Result<Query> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            // The number is limited, as each is compared with all others.
            if pairs.len() == QUERY_PARAMETERS {
                let what = format!("more than {QUERY_PARAMETERS} query parameters");
                return Err(refuse(S3ErrorCode::InvalidArgument, what));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                let what = format!("query parameter {name} given twice");
                return Err(refuse(S3ErrorCode::InvalidArgument, what));
            }
            pairs.push((name, value));
        }
        Ok(Query { pairs })
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns a value that is a number, a boolean or the like.
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> S3Result<Option<T>> {
        let bad = |value| invalid(format!("invalid query: {name}: {value}"));
        self.get(name).map(|value| value.parse().map_err(|_| bad(value))).transpose()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// Keeps only the pairs with names for which `keep` returns true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.pairs.retain(|(name, _)| keep(name));
    }
}

/// Decodes a text. `+` is a space, as in forms; clients that mean a plus send `%2B`.
fn decode(text: &str) -> S3Result<String> {
    let spaced: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    match percent_decode(&spaced).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(refuse(S3ErrorCode::InvalidURI, "the query is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_once() {
        let query = Query::parse(Some("a=1&&b&c=%2526+%2B&%C3%A9=")).unwrap();
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("b"), Some(""));
        assert_eq!(query.get("c"), Some("%26 +"));
        assert_eq!(query.get("é"), Some(""));
        assert!(!query.has("d"));
    }

    #[test]
    fn refuses_doubles_and_bytes_that_are_no_text() {
        assert!(Query::parse(Some("a=1&a=1")).is_err());
        assert!(Query::parse(Some("a=1&%61=1")).is_err());
        assert!(Query::parse(Some("a=%FF")).is_err());
    }

    #[test]
    fn refuses_more_than_anybody_needs() {
        let many = |count: usize| (0..count).map(|at| format!("a{at}&")).collect::<String>();
        assert!(Query::parse(Some(&many(QUERY_PARAMETERS))).is_ok());
        assert!(Query::parse(Some(&many(QUERY_PARAMETERS + 1))).is_err());
    }
}
