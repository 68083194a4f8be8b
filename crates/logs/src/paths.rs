//! The paths of records: `BUCKET/SOURCE/DAY.jsonl`, by a template for all users or for one.
//!
//! A template has exactly these three parts. The values put into it are names of users and
//! protocols, and encoded names of sources: none of them adds a part.

use std::collections::HashMap;

use cairn_base::{Error, Result};

use crate::counts::Protocol;
use crate::limits::SOURCE_BYTES;

/// Template that is used if none is set.
const DEFAULT: &str = "logs-{user}/{source}/{day}.jsonl";
/// Beginning of the names of buckets for records, by which retention and `cairn logs` find them.
pub const BUCKETS: &str = "logs-";
const DAY: &str = "{day}.jsonl";
const USER: &str = "{user}";
const SOURCE: &str = "{source}";
const PROTOCOL: &str = "{protocol}";
/// Bytes of a bucket's name.
const BUCKET_BYTES: usize = 63;

/// A template of the path of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathTemplate {
    bucket: String,
    source: String,
}

/// The templates of all users.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogPaths {
    all: PathTemplate,
    /// Templates of single users, by name.
    users: HashMap<String, PathTemplate>,
}

impl PathTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// `Invalid` if the text is not a template.
    pub fn parse(text: &str) -> Result<PathTemplate> {
        let bad =
            |why: &str| Err(Error::Invalid(format!("{text:?}: {why}; the default is {DEFAULT}")));
        let parts: Vec<&str> = text.split('/').collect();
        let [bucket, source, day] = parts[..] else {
            return bad("use three parts: BUCKET/SOURCE/{day}.jsonl");
        };
        if day != DAY {
            return bad("the last part is {day}.jsonl");
        }
        let is_of_bucket = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        };
        let literal = bucket.replacen(USER, "", 1);
        let ends_well = |text: &str| !text.ends_with(['-', '.']);
        if !bucket.starts_with(BUCKETS) || !literal.bytes().all(is_of_bucket) || !ends_well(bucket)
        {
            return bad("the bucket's name begins with logs- and has a-z 0-9 . - and {user}");
        }
        if literal.len() > BUCKET_BYTES {
            return bad("the bucket's name is too long");
        }
        let is_of_source =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let literal = source.replacen(SOURCE, "", 1).replacen(PROTOCOL, "", 1);
        if !source.contains(SOURCE) {
            return bad("the second part has {source}: different sources have different files");
        }
        if !literal.bytes().all(is_of_source) || source.starts_with('.') {
            return bad("the second part has letters, digits, - _ . and {source}, {protocol}");
        }
        if literal.len() > SOURCE_BYTES / 2 {
            return bad("the second part is too long");
        }
        Ok(PathTemplate { bucket: bucket.to_owned(), source: source.to_owned() })
    }

    /// Returns whether each user has a bucket of its own, which is made at first use.
    pub fn is_own(&self) -> bool {
        self.bucket.contains(USER)
    }

    pub fn bucket(&self, user: &str) -> String {
        self.bucket.replacen(USER, user, 1)
    }

    /// Returns the component of a path for the encoded name of a source.
    ///
    /// # Errors
    /// `Invalid` if it is too long.
    pub fn source(&self, protocol: Protocol, encoded: &str) -> Result<String> {
        let source = self.source.replacen(PROTOCOL, protocol.name(), 1);
        let source = source.replacen(SOURCE, encoded, 1);
        if source.len() > SOURCE_BYTES {
            let what = "the name of the source, as its template makes it";
            Err(Error::Invalid(format!("{what}: at most {SOURCE_BYTES} bytes, encoded")))
        } else {
            Ok(source)
        }
    }
}

impl Default for PathTemplate {
    fn default() -> PathTemplate {
        let (bucket, source) = (format!("{BUCKETS}{USER}"), SOURCE.to_owned());
        PathTemplate { bucket, source }
    }
}

impl LogPaths {
    /// Reads texts of the forms `TEMPLATE` and `USER=TEMPLATE`.
    ///
    /// # Errors
    /// `Invalid` if a text is neither, or one occurs twice.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<LogPaths> {
        let (mut all, mut users) = (None, HashMap::new());
        for text in texts {
            let before = match text.split_once('=') {
                Some((user, template)) => {
                    users.insert(user.to_owned(), PathTemplate::parse(template)?)
                }
                None => all.replace(PathTemplate::parse(text)?),
            };
            if before.is_some() {
                return Err(Error::Invalid(format!("{text:?}: there is one before it")));
            }
        }
        Ok(LogPaths { all: all.unwrap_or_default(), users })
    }

    pub fn of(&self, user: &str) -> &PathTemplate {
        self.users.get(user).unwrap_or(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn templates_have_three_parts_and_nothing_else() {
        let made = |text: &str| {
            let template = PathTemplate::parse(text).unwrap();
            let source = template.source(Protocol::Loki, "a%2Fb").unwrap();
            format!("{}/{source}", template.bucket("alice"))
        };
        assert_eq!(PathTemplate::parse(DEFAULT).unwrap(), PathTemplate::default());
        assert_eq!(made(DEFAULT), "logs-alice/a%2Fb");
        let shared = "logs-team/{protocol}-{source}/{day}.jsonl";
        assert_eq!(made(shared), "logs-team/loki-a%2Fb");
        assert!(!PathTemplate::parse(shared).unwrap().is_own());
        assert_eq!(made("logs-{user}-x/prod.{source}_1/{day}.jsonl"), "logs-alice-x/prod.a%2Fb_1");
        for bad in [
            "",
            "logs-{user}/{source}",
            "logs-{user}/{source}/{day}",
            "logs-{user}/{source}/x-{day}.jsonl",
            "logs-{user}/{source}/{day}.jsonl/",
            "/logs-{user}/{source}/{day}.jsonl",
            "logs-{user}/a/{source}/{day}.jsonl",
            "logs-{user}//{day}.jsonl",
            "logs-{user}/../{day}.jsonl",
            "logs-{user}/fixed/{day}.jsonl",
            "logs-{user}/.{source}/{day}.jsonl",
            "logs-{user}/{source}{source}/{day}.jsonl",
            "logs-{user}/{source}%2F/{day}.jsonl",
            "logs-{user}/{host}/{day}.jsonl",
            "logs-{user}/{source/{day}.jsonl",
            "photos/{source}/{day}.jsonl",
            "{user}/{source}/{day}.jsonl",
            "logs-{user}{user}/{source}/{day}.jsonl",
            "logs-{source}/{source}/{day}.jsonl",
            "logs-A/{source}/{day}.jsonl",
            "logs-/{source}/{day}.jsonl",
            "logs-é/{source}/{day}.jsonl",
        ] {
            assert!(PathTemplate::parse(bad).is_err(), "{bad}");
        }
        let long = PathTemplate::parse("logs-{user}/x{source}/{day}.jsonl").unwrap();
        assert!(long.source(Protocol::Bulk, &"y".repeat(SOURCE_BYTES)).is_err());
    }

    #[test]
    fn a_user_may_have_a_template_of_its_own() {
        let shared = "logs-team/{source}/{day}.jsonl";
        let paths = LogPaths::parse([&format!("alice={shared}")[..], DEFAULT]).unwrap();
        assert_eq!(paths.of("alice").bucket("alice"), "logs-team");
        assert_eq!(paths.of("bob").bucket("bob"), "logs-bob");
        assert!(LogPaths::parse([DEFAULT, DEFAULT]).is_err());
        assert!(LogPaths::parse(["a=b"]).is_err());
        assert_eq!(LogPaths::parse([]).unwrap(), LogPaths::default());
    }

    proptest! {
        #[test]
        fn what_is_made_is_one_component(template in "[a-z.{}/-]{0,30}", name in ".{1,20}") {
            let text = format!("logs-{{user}}/{template}{{source}}/{{day}}.jsonl");
            if let Ok(template) = PathTemplate::parse(&text)
                && let Ok(encoded) = crate::source::encode(&name)
                && let Ok(source) = template.source(Protocol::Otlp, &encoded)
            {
                prop_assert!(!source.contains('/') && !source.starts_with('.'));
            }
        }
    }
}
