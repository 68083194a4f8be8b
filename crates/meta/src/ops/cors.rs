//! The CORS rules by which pages of other sites may use a bucket.

use cairn_auth::Action;
use cairn_base::{Error, limits};
use serde::{Deserialize, Serialize};

use super::namespace::{find_bucket, open_bucket, store};
use crate::rows::{CorsRule, CorsRules};
use crate::{Context, Stop, Verb, View, keys};

/// Methods that a rule may name.
pub const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];
/// Most characters of the name of a rule.
const ID_CHARS: usize = 255;

/// Replaces all rules of a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutCors {
    pub bucket: String,
    /// The new rules; empty to remove all.
    pub rules: Vec<CorsRule>,
}

impl Verb for PutCors {
    type Reply = ();
    const NAME: &'static str = "put_cors";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let mut opened = open_bucket(view, context, &self.bucket, Action::PutBucketCors)?;
        opened.bucket.cors = check(&self.rules)?;
        store(view, keys::bucket(opened.id), &opened.bucket);
        Ok(())
    }
}

/// Finds the rules of a bucket. Doors ask before there is a caller, since a browser asks without
/// credentials.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindCors {
    pub bucket: String,
}

impl Verb for FindCors {
    /// Rules; empty if there is no such bucket.
    type Reply = CorsRules;
    const NAME: &'static str = "find_cors";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<CorsRules, Stop> {
        match find_bucket(view, &self.bucket) {
            Ok(opened) => Ok(opened.bucket.cors),
            Err(Stop::Fail(Error::NotFound(_))) => Ok(CorsRules::default()),
            Err(stop) => Err(stop),
        }
    }
}

/// Checks and encodes rules.
///
/// # Errors
/// `Invalid` for rules that no browser could match or that S3 refuses, `TooLarge` for more than
/// [`limits::CORS_RULES`] or [`limits::CORS_BYTES`].
pub fn check(rules: &[CorsRule]) -> Result<CorsRules, Error> {
    if rules.len() > limits::CORS_RULES {
        let (count, most) = (rules.len(), limits::CORS_RULES);
        return Err(Error::TooLarge(format!("{count} CORS rules: use at most {most}")));
    }
    rules.iter().try_for_each(check_rule)?;
    let rules = CorsRules::new(rules);
    if rules.bytes().len() > limits::CORS_BYTES {
        let (bytes, most) = (rules.bytes().len(), limits::CORS_BYTES);
        return Err(Error::TooLarge(format!("CORS rules of {bytes} bytes: at most {most}")));
    }
    Ok(rules)
}

fn check_rule(rule: &CorsRule) -> Result<(), Error> {
    let invalid = |text: String| Err(Error::Invalid(format!("CORS rule: {text}")));
    if rule.id.chars().count() > ID_CHARS {
        return invalid(format!("an id of more than {ID_CHARS} characters"));
    }
    if rule.origins.is_empty() || rule.methods.is_empty() {
        return invalid("it must have an origin and a method".into());
    }
    if let Some(bad) = rule.origins.iter().find(|origin| !is_origin(origin)) {
        return invalid(format!("origin {bad:?}: use one like https://*.example.com, or *"));
    }
    if let Some(bad) = rule.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
        return invalid(format!("method {bad:?}: use {}", METHODS.join(", ")));
    }
    if let Some(bad) = rule.headers.iter().find(|name| !is_name(name, 1)) {
        return invalid(format!("header {bad:?}: use names with at most one *"));
    }
    match rule.exposed.iter().find(|name| !is_name(name, 0)) {
        Some(bad) => invalid(format!("exposed header {bad:?}: use names without *")),
        None => Ok(()),
    }
}

/// Returns whether the text can be an origin or a pattern of origins. `null` is refused: every
/// sandboxed page has that origin.
fn is_origin(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"',;<>\\".contains(&byte);
    !matches!(text, "" | "null") && text.bytes().all(is_plain) && stars(text) <= 1
}

/// Returns whether the text can be the name of a header, with at most `most_stars` times `*`.
fn is_name(text: &str, most_stars: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain) && stars(text) <= most_stars
}

fn stars(text: &str) -> usize {
    text.matches('*').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> CorsRule {
        CorsRule {
            id: "pages".into(),
            origins: vec!["https://*.example.com".into(), "*".into()],
            methods: vec!["GET".into(), "PUT".into()],
            headers: vec!["x-amz-*".into(), "*".into(), "content-type".into()],
            exposed: vec!["ETag".into()],
            max_age_s: Some(0),
        }
    }

    #[test]
    fn rules_are_stored_as_they_are() {
        let other = CorsRule { max_age_s: None, id: String::new(), ..rule() };
        let rules = [rule(), other];
        assert_eq!(check(&rules).unwrap().decode().unwrap(), rules);
        assert!(check(&[]).unwrap().is_empty());
        assert!(CorsRules::default().decode().unwrap().is_empty());
    }

    #[test]
    fn rules_that_mean_nothing_are_refused() {
        let refused = |change: fn(&mut CorsRule)| {
            let mut changed = rule();
            change(&mut changed);
            assert!(matches!(check(&[changed.clone()]), Err(Error::Invalid(_))), "{changed:?}");
        };
        refused(|rule| rule.id = "x".repeat(256));
        refused(|rule| rule.origins.clear());
        refused(|rule| rule.methods.clear());
        refused(|rule| rule.methods.push("get".into()));
        refused(|rule| rule.methods.push("PATCH".into()));
        for bad in ["", "null", "https://*.*", "a b", "https://é", "a\nb", "a,b", "\"a\""] {
            assert!(!is_origin(bad), "{bad}");
        }
        for bad in ["", "a b", "a:b", "x-*-*", "a,b", "é", "a\r\nb"] {
            assert!(!is_name(bad, 1), "{bad}");
        }
        refused(|rule| rule.origins.push("null".into()));
        refused(|rule| rule.headers.push("x-*-*".into()));
        refused(|rule| rule.exposed.push("*".into()));
    }

    #[test]
    fn rules_are_bounded() {
        let many = |count: usize| vec![rule(); count];
        assert!(check(&many(limits::CORS_RULES)).is_ok());
        let too_many = check(&many(limits::CORS_RULES + 1));
        assert!(matches!(too_many, Err(Error::TooLarge(_))));
        let long = CorsRule { origins: vec!["x".repeat(limits::CORS_BYTES)], ..rule() };
        assert!(matches!(check(&[long]), Err(Error::TooLarge(_))));
    }
}
