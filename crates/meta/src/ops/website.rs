//! The website of a bucket.

use cairn_auth::Action;
use cairn_base::{Error, limits};
use serde::{Deserialize, Serialize};

use super::key_names::check_key;
use super::namespace::{open_bucket, store};
use crate::rows::{StoredWebsite, WebRedirect, Website};
use crate::{Context, Stop, Verb, View, keys};

/// Statuses that redirect a browser.
pub const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Statuses of errors that a rule may be for: those that S3 answers with.
pub const ERRORS: [u16; 11] = [400, 403, 404, 405, 409, 411, 412, 416, 500, 501, 503];

/// Makes a bucket a website, replaces the former website, or ends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutWebsite {
    pub bucket: String,
    pub website: Option<Website>,
}

impl Verb for PutWebsite {
    type Reply = ();
    const NAME: &'static str = "put_website";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let mut opened = open_bucket(view, context, &self.bucket, Action::PutBucketWebsite)?;
        opened.bucket.website = match &self.website {
            Some(website) => check(website)?,
            None => StoredWebsite::default(),
        };
        store(view, keys::bucket(opened.id), &opened.bucket);
        Ok(())
    }
}

/// Checks and encodes a website.
///
/// # Errors
/// `Invalid` for a website that S3 refuses, or that no browser could follow; `TooLarge` for more
/// than [`limits::WEBSITE_RULES`] or [`limits::WEBSITE_BYTES`].
pub fn check(website: &Website) -> Result<StoredWebsite, Error> {
    let invalid = |text: &str| Err(Error::Invalid(format!("website: {text}")));
    if let Some(to) = &website.redirect_all {
        if *website != (Website { redirect_all: Some(to.clone()), ..Website::default() }) {
            return invalid("a redirect of all requests is alone");
        }
        if to.host.is_empty() || to.key.is_some() || to.prefix.is_some() {
            return invalid("a redirect of all requests has a host, and no key");
        }
        check_redirect(to)?;
    } else {
        check_index(&website.index)?;
    }
    if !website.error.is_empty() {
        check_key(&website.error)?;
    }
    if website.rules.len() > limits::WEBSITE_RULES {
        let most = limits::WEBSITE_RULES;
        return Err(Error::TooLarge(format!("website: more than {most} rules")));
    }
    for rule in &website.rules {
        if rule.status != 0 && !ERRORS.contains(&rule.status) {
            let known = ERRORS.map(|status| status.to_string()).join(", ");
            let text = format!("a rule for the status {}: use {known}", rule.status);
            return invalid(&text);
        }
        check_redirect(&rule.to)?;
        let to = &rule.to;
        let is_same = to.host.is_empty() && to.protocol.is_empty();
        if is_same && to.key.is_none() && to.prefix.is_none() {
            return invalid("a rule leads to where the request came from");
        }
    }
    let stored = StoredWebsite::new(website);
    if stored.bytes().len() > limits::WEBSITE_BYTES {
        let (bytes, most) = (stored.bytes().len(), limits::WEBSITE_BYTES);
        return Err(Error::TooLarge(format!("website of {bytes} bytes: at most {most}")));
    }
    Ok(stored)
}

fn check_index(index: &str) -> Result<(), Error> {
    if index.is_empty() || index.contains('/') || matches!(index, "." | "..") {
        let text = format!("website: index {index:?}: use the name of a file, as index.html");
        return Err(Error::Invalid(text));
    }
    check_key(index)
}

fn check_redirect(to: &WebRedirect) -> Result<(), Error> {
    let invalid = |text: String| Err(Error::Invalid(format!("website: {text}")));
    if !matches!(&*to.protocol, "" | "http" | "https") {
        return invalid(format!("protocol {:?}: use http or https", to.protocol));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if !to.host.bytes().all(is_plain) || to.host.len() > 260 {
        return invalid(format!("host {:?}: use a name such as www.example.com", to.host));
    }
    if to.key.is_some() && to.prefix.is_some() {
        return invalid("a redirect replaces the key or its prefix, not both".into());
    }
    for text in [&to.key, &to.prefix].into_iter().flatten() {
        if text.contains('\0') || text.len() > limits::KEY_BYTES {
            return invalid("a key of a redirect is no key".into());
        }
    }
    if REDIRECTS.contains(&to.status) {
        Ok(())
    } else {
        invalid(format!("status {}: use 301, 302, 303, 307 or 308", to.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::WebRule;

    fn website() -> Website {
        let to = WebRedirect { prefix: Some(String::new()), status: 301, ..WebRedirect::default() };
        Website {
            index: "index.html".into(),
            error: "404.html".into(),
            redirect_all: None,
            rules: vec![WebRule { prefix: "old/".into(), status: 404, to }],
        }
    }

    #[test]
    fn a_website_is_stored_as_it_is() {
        let to = WebRedirect { host: "a.example".into(), status: 301, ..WebRedirect::default() };
        let elsewhere = Website { redirect_all: Some(to), ..Website::default() };
        for website in [website(), elsewhere] {
            assert_eq!(check(&website).unwrap().decode().unwrap(), Some(website));
        }
        assert_eq!(StoredWebsite::default().decode().unwrap(), None);
    }

    #[test]
    fn what_no_browser_could_follow_is_refused() {
        let refused = |change: fn(&mut Website)| {
            let mut changed = website();
            change(&mut changed);
            assert!(matches!(check(&changed), Err(Error::Invalid(_))), "{changed:?}");
        };
        refused(|website| website.index.clear());
        refused(|website| website.index = "a/b".into());
        refused(|website| website.error = "a\0b".into());
        refused(|website| website.rules[0].status = 200);
        refused(|website| website.rules[0].status = 418);
        refused(|website| website.rules[0].to.status = 200);
        refused(|website| website.rules[0].to.protocol = "javascript".into());
        refused(|website| website.rules[0].to.host = "a\r\nb".into());
        refused(|website| website.rules[0].to.host = "a/b".into());
        refused(|website| website.rules[0].to.host = "user@a".into());
        refused(|website| website.rules[0].to.key = Some("x".into()));
        refused(|website| website.rules[0].to.prefix = None);
        refused(|website| {
            let host = "a.example".into();
            let to = WebRedirect { host, status: 301, ..WebRedirect::default() };
            website.redirect_all = Some(to);
        });
        let many = Website { rules: vec![website().rules[0].clone(); 51], ..website() };
        assert!(matches!(check(&many), Err(Error::TooLarge(_))));
    }
}
