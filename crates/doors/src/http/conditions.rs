//! If-Match and similar headers (RFC 9110, section 13).

use cairn_base::Timestamp;
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use http::{HeaderMap, HeaderValue};

/// Returns the conditions of a request that reads. A malformed date is ignored.
pub fn of_read(headers: &HeaderMap) -> Conditions {
    Conditions {
        if_none_match: etags(headers, &IF_NONE_MATCH, Comparison::Weak),
        if_modified_since: date(headers.get(IF_MODIFIED_SINCE)),
        ..of_change(headers)
    }
}

/// Returns the conditions of a request that changes: without If-Modified-Since, which is for reads.
pub fn of_change(headers: &HeaderMap) -> Conditions {
    Conditions {
        if_match: etags(headers, &IF_MATCH, Comparison::Strong),
        if_none_match: etags(headers, &IF_NONE_MATCH, Comparison::Weak),
        if_unmodified_since: date(headers.get(IF_UNMODIFIED_SINCE)),
        ..Conditions::default()
    }
}

/// Checks whether an object is to be sent.
///
/// # Errors
/// `NotModified` or `PreconditionFailed` if not.
pub fn check_read(
    headers: &HeaderMap,
    etag: &str,
    modified: Timestamp,
    size: u64,
) -> cairn_base::Result<()> {
    const NAMES: [HeaderName; 4] =
        [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
    if NAMES.iter().any(|name| headers.contains_key(name)) {
        return of_read(headers).check_read_of(|| etag.to_owned(), modified, size);
    }
    Ok(())
}

/// Returns whether a Range header counts: without If-Range it does; with If-Range only if that
/// names the present state, by a strong ETag or by exactly its date.
pub fn range_counts(headers: &HeaderMap, etag: &str, modified: Timestamp) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    if let Some(since) = date(Some(value)) {
        return since.secs() == modified.secs();
    }
    let text = value.to_str().unwrap_or_default().trim();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) == Some(etag)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Strong comparison: `W/"x"` matches nothing.
    Strong,
    Weak,
}

fn date(value: Option<&HeaderValue>) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(value?.to_str().ok()?).ok()?;
    Some(Timestamp::from_system_time(time))
}

/// Returns the ETags of all headers of one name. A header that cannot be read matches nothing.
fn etags(headers: &HeaderMap, name: &HeaderName, comparison: Comparison) -> Option<EtagMatch> {
    if !headers.contains_key(name) {
        return None;
    }
    let mut found = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().unwrap_or_default();
        if text.trim() == "*" {
            return Some(EtagMatch::Any);
        }
        parse_list(text, comparison, &mut found);
    }
    Some(EtagMatch::OneOf(found))
}

/// Reads a list of `"x"` and `W/"x"`; a bare `x` counts as `"x"`, as some clients send it.
fn parse_list(text: &str, comparison: Comparison, found: &mut Vec<String>) {
    let mut rest = text.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let (is_weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (etag, after) = match quoted.strip_prefix('"') {
            Some(open) => match open.split_once('"') {
                Some(closed) => closed,
                None => return,
            },
            None => quoted.split_once(',').unwrap_or((quoted, "")),
        };
        if !is_weak || comparison == Comparison::Weak {
            found.push(etag.trim().to_owned());
        }
        rest = after.trim_start_matches([' ', '\t', ',']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str, comparison: Comparison) -> Vec<String> {
        let mut found = Vec::new();
        parse_list(text, comparison, &mut found);
        found
    }

    #[test]
    fn lists_of_etags() {
        let weak = |text| list(text, Comparison::Weak);
        assert_eq!(weak(r#""a""#), ["a"]);
        assert_eq!(weak(r#""a,b" , W/"c","#), ["a,b", "c"]);
        assert_eq!(weak("abc, def"), ["abc", "def"]);
        assert_eq!(weak(r#""""#), [""]);
        assert_eq!(weak(r#""open"#), [""; 0]);
        assert_eq!(list(r#"W/"a", "b""#, Comparison::Strong), ["b"]);
    }

    #[test]
    fn if_range_wants_the_exact_state() {
        let at = Timestamp::from_secs(784_111_777);
        let counts = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_RANGE, value.parse().unwrap());
            range_counts(&headers, "e", at)
        };
        assert!(counts("\"e\"") && counts("Sun, 06 Nov 1994 08:49:37 GMT"));
        for other in ["\"f\"", "W/\"e\"", "e", "", "Sun, 06 Nov 1994 08:49:38 GMT"] {
            assert!(!counts(other), "{other}");
        }
        assert!(range_counts(&HeaderMap::new(), "e", at));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]
        #[test]
        fn any_list_is_read(text in "[W/\", a*]{0,40}", strong: bool) {
            let comparison = if strong { Comparison::Strong } else { Comparison::Weak };
            prop_assert!(list(&text, comparison).len() <= text.len());
        }
    }
}
