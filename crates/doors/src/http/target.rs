//! The target of a request, by its path and query.

use std::borrow::Cow;

use cairn_base::{Error, Result, limits};

use super::log_path::LogPath;
use crate::limits::QUERY_PARAMETERS;
use crate::records::SHARED;

/// The target that a path names. Text is percent-decoded, once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// `/storage/`
    Buckets,
    /// `/storage/<bucket>`
    Bucket(Cow<'a, str>),
    /// `/storage/<bucket>/` and `/storage/<bucket>/<path>/`: keys that begin with this.
    Prefix {
        bucket: Cow<'a, str>,
        prefix: Cow<'a, str>,
    },
    /// `/storage/<bucket>/<path>`
    Object {
        bucket: Cow<'a, str>,
        key: Cow<'a, str>,
    },
    /// `/admin/<path>`
    Admin(Cow<'a, str>),
    /// `/keys`: the caller's access keys and tokens.
    OwnKeys,
    /// `/keys/<id>`
    OwnKey(Cow<'a, str>),
    /// `/shares`: share links.
    ShareLinks,
    /// `/shares/<id>`
    ShareLink(Cow<'a, str>),
    /// `/s/<token>`, and paths below it.
    Shared {
        token: Cow<'a, str>,
        path: Option<Cow<'a, str>>,
    },
    /// `/tus/<bucket>/<path>`: resumable uploads.
    Tus {
        bucket: Cow<'a, str>,
        key: Cow<'a, str>,
    },
    /// `/mount`: the address to which mounts connect.
    Mount,
    Health,
    Ready,
    Metrics,
    /// A path for shippers of logs.
    Logs(LogPath<'a>),
    Unknown,
}

impl Target<'_> {
    /// Returns the bucket that the target names or lies in.
    pub fn bucket(&self) -> Option<&str> {
        match self {
            Target::Bucket(bucket)
            | Target::Prefix { bucket, .. }
            | Target::Object { bucket, .. }
            | Target::Tus { bucket, .. } => Some(bucket),
            _ => None,
        }
    }

    /// Parses the path of a request. Nothing in it is resolved: `.`, `..` and empty components are
    /// parts of a name like any other. See [`check_new`] for keys that may be made.
    ///
    /// # Errors
    /// `Invalid` for a malformed escape, text that is not UTF-8 or has a NUL in it, or a key that
    /// is too long.
    pub fn parse(path: &str) -> Result<Target<'_>> {
        if let Some(rest) = path.strip_prefix("/storage/") {
            return storage(rest);
        }
        Ok(match path {
            "/storage" => Target::Buckets,
            "/mount" => Target::Mount,
            "/healthz" => Target::Health,
            "/readyz" => Target::Ready,
            "/metrics" => Target::Metrics,
            "/shares" => Target::ShareLinks,
            "/keys" => Target::OwnKeys,
            _ if let Some(shared) = shared(path)? => shared,
            _ => match path.strip_prefix("/admin/") {
                Some(rest) => Target::Admin(decode(rest)?),
                None => LogPath::parse(path, decode)?.map_or(Target::Unknown, Target::Logs),
            },
        })
    }
}

/// Parses paths below `/s/`, `/shares/`, `/keys/` and `/tus/`, except pushes of logs to indices of
/// these names.
fn shared(path: &str) -> Result<Option<Target<'_>>> {
    let is_id = |id: &str| !id.is_empty() && id != "_bulk" && !id.contains('/');
    if let Some(id) = path.strip_prefix("/shares/") {
        return Ok(if is_id(id) { Some(Target::ShareLink(decode(id)?)) } else { None });
    }
    if let Some(id) = path.strip_prefix("/keys/") {
        return Ok(if is_id(id) { Some(Target::OwnKey(decode(id)?)) } else { None });
    }
    if let Some(rest) = path.strip_prefix("/tus/").filter(|rest| *rest != "_bulk") {
        return Ok(match storage(rest)? {
            Target::Bucket(bucket) => Some(Target::Tus { bucket, key: "".into() }),
            Target::Prefix { bucket, prefix: key } | Target::Object { bucket, key } => {
                Some(Target::Tus { bucket, key })
            }
            _ => None,
        });
    }
    let Some(rest) = path.strip_prefix(SHARED) else { return Ok(None) };
    let (token, path) = match rest.split_once('/') {
        Some((token, path)) => (token, Some(decode(path)?)),
        None => (rest, None),
    };
    let is_token = !token.is_empty() && token != "_bulk";
    Ok(if is_token { Some(Target::Shared { token: decode(token)?, path }) } else { None })
}

fn storage(rest: &str) -> Result<Target<'_>> {
    let Some((bucket, path)) = rest.split_once('/') else {
        return Ok(if rest.is_empty() { Target::Buckets } else { Target::Bucket(decode(rest)?) });
    };
    let (bucket, path) = (decode(bucket)?, decode(path)?);
    if path.len() > limits::KEY_BYTES {
        let (len, most) = (path.len(), limits::KEY_BYTES);
        return Err(Error::Invalid(format!("a key of {len} bytes; must be at most {most}")));
    }
    if path.is_empty() || path.ends_with('/') {
        Ok(Target::Prefix { bucket, prefix: path })
    } else {
        Ok(Target::Object { bucket, key: path })
    }
}

/// Checks whether this door makes an object with such a key. A path with `.` or `..` would not mean
/// what its writer expects; objects with such keys, made by S3, can be read and deleted.
///
/// # Errors
/// `Invalid` if a component is one of them.
pub fn check_new(key: &str) -> Result<()> {
    if key.split('/').any(|name| matches!(name, "." | "..")) {
        return Err(Error::Invalid(format!("key {key:?}: no component may be . or ..")));
    }
    Ok(())
}

/// Removes percent-encoding, once. A `+` stays as it is.
pub(super) fn decode(text: &str) -> Result<Cow<'_, str>> {
    let bad = |what: &str| Error::Invalid(format!("path or query: {what}"));
    let decoded = if text.contains('%') {
        Cow::Owned(unescape(text.as_bytes()).ok_or_else(|| bad("a malformed %-escape"))?)
    } else {
        Cow::Borrowed(text)
    };
    if decoded.contains('\0') {
        return Err(bad("a NUL byte"));
    }
    Ok(decoded)
}

/// Returns `None` if a `%` is not followed by two hex digits, or the result is not UTF-8.
fn unescape(text: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (&[high, low], after) = rest.split_first_chunk()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        out.push((digit(high)? * 16 + digit(low)?) as u8);
        rest = after;
    }
    String::from_utf8(out).ok()
}

/// The parameters of a query, decoded like a form, in which `+` is a space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// `Invalid` for a malformed escape, text that is not UTF-8, a parameter given twice, or too
    /// many of them: each is compared with all others.
    pub fn parse(query: Option<&str>) -> Result<Query> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |text: &str| decode(&text.replace('+', " ")).map(Cow::into_owned);
            let (name, value) = (text(name)?, text(value)?);
            if pairs.len() == QUERY_PARAMETERS {
                let what = format!("more than {QUERY_PARAMETERS} query parameters");
                return Err(Error::Invalid(what));
            }
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(Error::Invalid(format!("query parameter {name:?} given twice")));
            }
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether a switch is on: present, and neither `0` nor `false`.
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value, "0" | "false"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_path::Probe;
    use super::*;
    use proptest::prelude::*;

    fn object<'a>(bucket: &'a str, key: &'a str) -> Target<'a> {
        Target::Object { bucket: bucket.into(), key: key.into() }
    }

    fn prefix<'a>(bucket: &'a str, prefix: &'a str) -> Target<'a> {
        Target::Prefix { bucket: bucket.into(), prefix: prefix.into() }
    }

    #[test]
    fn paths() {
        let table = [
            ("/storage", Target::Buckets),
            ("/storage/", Target::Buckets),
            ("/storage/b", Target::Bucket("b".into())),
            ("/storage/b/", prefix("b", "")),
            ("/storage/b/x/", prefix("b", "x/")),
            ("/storage/b/x", object("b", "x")),
            ("/storage/b//x", object("b", "/x")),
            ("/storage/b/x//y", object("b", "x//y")),
            ("/storage/b/../c/x", object("b", "../c/x")),
            ("/storage/b/%2e%2e/x", object("b", "../x")),
            ("/storage/b/%252e", object("b", "%2e")),
            ("/storage/b/a%2Fb", object("b", "a/b")),
            ("/storage/b%2Fc/d", object("b/c", "d")),
            ("/storage/b/a+b", object("b", "a+b")),
            ("/storage/b/%C3%A9", object("b", "é")),
            ("/storage/b/é", object("b", "é")),
            ("/storage/../admin/keys", object("..", "admin/keys")),
            ("/admin/keys", Target::Admin("keys".into())),
            ("/shares", Target::ShareLinks),
            ("/keys", Target::OwnKeys),
            ("/keys/CK1", Target::OwnKey("CK1".into())),
            ("/keys/_bulk", Target::Logs(LogPath::Bulk("keys".into()))),
            ("/shares/1-A", Target::ShareLink("1-A".into())),
            ("/s/1-A-B", Target::Shared { token: "1-A-B".into(), path: None }),
            ("/s/x/", Target::Shared { token: "x".into(), path: Some("".into()) }),
            ("/s/x/a%2Fb/..", Target::Shared { token: "x".into(), path: Some("a/b/..".into()) }),
            ("/s/_bulk", Target::Logs(LogPath::Bulk("s".into()))),
            ("/shares/_bulk", Target::Logs(LogPath::Bulk("shares".into()))),
            ("/tus/b/x/", Target::Tus { bucket: "b".into(), key: "x/".into() }),
            ("/tus/b", Target::Tus { bucket: "b".into(), key: "".into() }),
            ("/tus/_bulk", Target::Logs(LogPath::Bulk("tus".into()))),
            ("/s/", Target::Unknown),
            ("/storagex/b", Target::Unknown),
            ("/", Target::Logs(LogPath::Probe(Probe::Version))),
            ("/a%2Fb/_bulk", Target::Logs(LogPath::Bulk("a/b".into()))),
            ("//storage/b/x", Target::Unknown),
            ("*", Target::Unknown),
        ];
        for (path, target) in table {
            assert_eq!(Target::parse(path).unwrap(), target, "{path}");
        }
        let long = "k".repeat(1025);
        for bad in ["%", "%2", "%zz", "%+1", "a%00b", "%ff", "%C3", "%ED%A0%80", &long] {
            let path = format!("/storage/b/{bad}");
            assert!(matches!(Target::parse(&path), Err(Error::Invalid(_))), "{path}");
        }
    }

    #[test]
    fn dots_are_no_new_names() {
        for key in ["a", "a/b", "...", ".a", "a.", "..a/b", "a//b", "/a"] {
            assert!(check_new(key).is_ok(), "{key}");
        }
        for key in [".", "..", "./a", "a/.", "a/../b", "../a", "a/.."] {
            assert!(matches!(check_new(key), Err(Error::Invalid(_))), "{key}");
        }
    }

    #[test]
    fn queries() {
        let query = Query::parse(Some("a=1&b&c=x+y%2B&&d=")).unwrap();
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("c"), Some("x y+"));
        assert!(query.is_set("b") && query.is_set("d") && !query.is_set("e"));
        assert!(!Query::parse(Some("a=0")).unwrap().is_set("a"));
        let many = |count: usize| (0..count).map(|at| format!("a{at}&")).collect::<String>();
        assert!(Query::parse(Some(&many(QUERY_PARAMETERS))).is_ok());
        for bad in ["a&a=1", "a=%", "a=%00", &many(QUERY_PARAMETERS + 1)] {
            assert!(Query::parse(Some(bad)).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        #[test]
        fn what_was_encoded_is_decoded_once(key in "[^\\x00]{1,40}") {
            use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
            let path = format!("/storage/b/{}", utf8_percent_encode(&key, NON_ALPHANUMERIC));
            let target = Target::parse(&path).unwrap();
            let expected = if key.ends_with('/') { prefix("b", &key) } else { object("b", &key) };
            prop_assert_eq!(target, expected);
        }

        #[test]
        fn any_path_is_parsed_or_refused(rest in "[%0-9a-f./+é\\x00]{0,24}") {
            if let Ok(Target::Object { key, .. }) = Target::parse(&format!("/storage/b/{rest}")) {
                prop_assert!(!key.is_empty() && !key.ends_with('/') && !key.contains('\0'));
            }
            let _ = Query::parse(Some(&rest));
        }
    }
}
