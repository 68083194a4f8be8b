//! Pages of other sites (CORS): finds the rule of a bucket that a page's request matches, and sets
//! the headers for its browser. The browser decides; a rule gives no rights.
//!
//! The origin of a request is sent back only if a rule names it. It comes with
//! `Access-Control-Allow-Credentials` only at the S3 door, where a browser knows no credentials
//! that it could add by itself.

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use cairn_fs::ops::cors::{FindCors, METHODS};
use cairn_fs::rows::CorsRule;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method};

use crate::limits;

/// Headers that the answer to a preflight depends on.
pub const VARY_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
);

/// The reason why a preflight is refused. It is the same for a bucket without rules and for a
/// missing bucket.
#[derive(Debug)]
pub enum Refusal {
    /// It is incomplete, or no browser sends such a preflight.
    Malformed(&'static str),
    /// No rule allows it.
    NotAllowed,
    /// The rules could not be read.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

/// Returns whether a request is a preflight, with which a browser asks if a page may send a
/// request.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Settings of CORS that differ between doors.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// True if browsers may add credentials that they know.
    pub credentials: bool,
    /// Names of headers that are exposed in addition to those of the rule.
    pub exposed: &'static str,
}

/// The rules for pages of other sites in a bucket.
pub struct Cors {
    policy: Policy,
    rules: Vec<CorsRule>,
}

impl Cors {
    /// Returns the rules of a bucket, which need not exist; none without a bucket.
    pub async fn of(fs: &Fs, bucket: Option<&str>, policy: Policy) -> Result<Cors> {
        let Some(bucket) = bucket else { return Ok(Cors { policy, rules: Vec::new() }) };
        let (caller, verb) = (Caller::system(), FindCors { bucket: bucket.to_owned() });
        let found = match fs.read_now(&caller, &verb) {
            Some(found) => found?,
            None => fs.read(&caller, verb).await?,
        };
        Ok(Cors { policy, rules: found.decode()? })
    }

    /// Returns a single rule that belongs to no bucket.
    pub fn by(rule: CorsRule, policy: Policy) -> Cors {
        Cors { policy, rules: vec![rule] }
    }

    /// Returns the rules as [`Cors::of`] does, if a page makes the request and there are any. If
    /// the rules cannot be read, returns `None`: the request itself will report the error.
    pub async fn of_page(
        fs: &Fs,
        headers: &HeaderMap,
        bucket: Option<&str>,
        policy: Policy,
    ) -> Option<Cors> {
        if !headers.contains_key(ORIGIN) || bucket.is_none() {
            return None;
        }
        match Cors::of(fs, bucket, policy).await {
            Ok(cors) if cors.rules.is_empty() => None,
            Ok(cors) => Some(cors),
            Err(error) => {
                tracing::warn!(%error, "rules of CORS cannot be read");
                None
            }
        }
    }

    /// Returns the headers of the answer to a preflight.
    pub fn preflight(&self, headers: &HeaderMap) -> Result<HeaderMap, Refusal> {
        let Some(origin) = origin(headers) else {
            return Err(Refusal::Malformed(
                "Insufficient information. Origin request header needed.",
            ));
        };
        let method = single(headers, &ACCESS_CONTROL_REQUEST_METHOD);
        let Some(method) = method.filter(|method| METHODS.contains(method)) else {
            return Err(Refusal::Malformed(
                "Access-Control-Request-Method: use GET, PUT, POST, DELETE or HEAD",
            ));
        };
        let Some(wanted) = wanted(headers) else {
            return Err(Refusal::Malformed("Access-Control-Request-Headers: not names of headers"));
        };
        let allows = |rule: &&CorsRule| {
            if !allows(rule, origin, method) {
                return false;
            }
            let known: Vec<String> =
                rule.headers.iter().map(|name| name.to_ascii_lowercase()).collect();
            wanted.iter().all(|name| known.iter().any(|known| matches(known, name.as_str())))
        };
        let rule = self.rules.iter().find(allows).ok_or(Refusal::NotAllowed)?;
        let mut told = HeaderMap::new();
        self.tell(rule, origin, &mut told);
        put(&mut told, ACCESS_CONTROL_ALLOW_METHODS, &rule.methods.join(", "));
        let names: Vec<&str> = wanted.iter().map(HeaderName::as_str).collect();
        put(&mut told, ACCESS_CONTROL_ALLOW_HEADERS, &names.join(", "));
        if let Some(seconds) = rule.max_age_s {
            told.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
        told.insert(VARY, VARY_PREFLIGHT);
        Ok(told)
    }

    /// Returns whether a rule lets a page of this origin send a request.
    pub fn allows(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.rule(method, headers).is_some()
    }

    fn rule<'a>(&self, method: &Method, headers: &'a HeaderMap) -> Option<(&CorsRule, &'a str)> {
        let origin = origin(headers)?;
        let rule = self.rules.iter().find(|rule| allows(rule, origin, method.as_str()))?;
        Some((rule, origin))
    }

    /// Sets the headers of a reply, whatever its status, that say whether the page may read it.
    pub fn say(&self, method: &Method, asked: &HeaderMap, reply: &mut HeaderMap) {
        vary(reply);
        if let Some((rule, origin)) = self.rule(method, asked) {
            self.tell(rule, origin, reply);
        }
    }

    fn tell(&self, rule: &CorsRule, origin: &str, reply: &mut HeaderMap) {
        let is_any = rule.origins.iter().any(|known| known == "*");
        put(reply, ACCESS_CONTROL_ALLOW_ORIGIN, if is_any { "*" } else { origin });
        if !is_any && self.policy.credentials {
            reply.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        let mut exposed = self.policy.exposed.to_owned();
        for name in &rule.exposed {
            if !exposed.is_empty() {
                exposed.push_str(", ");
            }
            exposed.push_str(name);
        }
        put(reply, ACCESS_CONTROL_EXPOSE_HEADERS, &exposed);
    }
}

/// Adds `Vary: Origin`, so that a cache keeps a reply for requests of the same origin only. Also
/// needed if no page made the request, as a cache might give the reply to one.
pub fn vary(reply: &mut HeaderMap) {
    let is_said = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"origin");
    if !reply.get_all(VARY).iter().any(is_said) {
        reply.append(VARY, HeaderValue::from_static("Origin"));
    }
}

fn allows(rule: &CorsRule, origin: &str, method: &str) -> bool {
    rule.methods.iter().any(|known| known == method)
        && rule.origins.iter().any(|known| known == "*" || matches_origin(known, origin))
}

/// Returns whether a pattern matches an origin. `null` is the origin of every page in a sandbox:
/// only the pattern `*` matches it.
fn matches_origin(pattern: &str, origin: &str) -> bool {
    origin != "null" && matches(pattern, origin)
}

/// Returns whether a pattern matches a text; `*` stands for any number of characters.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

/// Returns the origin of a page, in the form that browsers use; `None` for anything else.
fn origin(headers: &HeaderMap) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%+".contains(&byte);
    single(headers, &ORIGIN).filter(|text| !text.is_empty() && text.bytes().all(is_plain))
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

/// Returns the names of the headers that the request would have. Returns `None` if they are not
/// names, or too many for a real page.
fn wanted(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut wanted = Vec::new();
    for value in headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
        for name in value.to_str().ok()?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if wanted.len() == limits::PREFLIGHT_HEADERS {
                return None;
            }
            wanted.push(HeaderName::from_bytes(name.as_bytes()).ok()?);
        }
    }
    Some(wanted)
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if !value.is_empty()
        && let Ok(value) = HeaderValue::from_str(value)
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CorsRule {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        CorsRule {
            origins: owned(origins),
            methods: owned(methods),
            headers: owned(headers),
            ..CorsRule::default()
        }
    }

    fn cors(rules: Vec<CorsRule>) -> Cors {
        Cors { policy: Policy { credentials: true, exposed: "" }, rules }
    }

    fn asking(origin: &str, method: &str, headers: &str) -> HeaderMap {
        let mut asked = HeaderMap::new();
        asked.insert(ORIGIN, origin.parse().unwrap());
        asked.insert(ACCESS_CONTROL_REQUEST_METHOD, method.parse().unwrap());
        if !headers.is_empty() {
            asked.insert(ACCESS_CONTROL_REQUEST_HEADERS, headers.parse().unwrap());
        }
        asked
    }

    fn said(told: &HeaderMap, name: &HeaderName) -> String {
        told.get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
    }

    /// The rules of S3's documentation, and what it says of them.
    #[test]
    fn the_first_rule_that_matches_counts() {
        let pages = "http://www.example.com";
        let cors = cors(vec![
            rule(&["http://www.example1.com"], &["PUT", "POST", "DELETE"], &["*"]),
            CorsRule {
                exposed: vec!["x-amz-request-id".into(), "ETag".into()],
                max_age_s: Some(3000),
                ..rule(
                    &[pages, "http://*.example.org"],
                    &["PUT", "HEAD"],
                    &["x-amz-*", "Content-Type"],
                )
            },
            rule(&["*"], &["GET"], &[]),
        ]);
        let allowed = |origin: &str, method: &str, headers: &str| {
            cors.preflight(&asking(origin, method, headers)).ok().map(|told| {
                let credentials = told.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS);
                (said(&told, &ACCESS_CONTROL_ALLOW_ORIGIN), credentials)
            })
        };
        let named = |origin: &str| Some((origin.to_owned(), true));
        let any = Some(("*".to_owned(), false));
        let one = "http://www.example1.com";
        assert_eq!(allowed(one, "PUT", "x-anything, Y"), named(one));
        assert_eq!(allowed(one, "GET", ""), any);
        assert_eq!(allowed(one, "HEAD", ""), None);
        assert_eq!(allowed(pages, "PUT", "X-AMZ-Date,content-type"), named(pages));
        assert_eq!(allowed(pages, "PUT", "x-am-date"), None);
        assert_eq!(allowed(pages, "DELETE", ""), None);
        assert_eq!(allowed("http://a.example.org", "HEAD", ""), named("http://a.example.org"));
        for other in ["http://example.org", "https://a.example.org", "http://a.example.org.evil"] {
            assert_eq!(allowed(other, "HEAD", ""), None, "{other}");
        }
        assert_eq!(allowed("null", "GET", ""), any);
        assert_eq!(allowed("null", "GET", "range"), None);
        let told = cors.preflight(&asking(pages, "PUT", "X-Amz-Date, Content-Type")).unwrap();
        assert_eq!(said(&told, &ACCESS_CONTROL_ALLOW_METHODS), "PUT, HEAD");
        assert_eq!(said(&told, &ACCESS_CONTROL_ALLOW_HEADERS), "x-amz-date, content-type");
        assert_eq!(said(&told, &ACCESS_CONTROL_EXPOSE_HEADERS), "x-amz-request-id, ETag");
        assert_eq!(said(&told, &ACCESS_CONTROL_MAX_AGE), "3000");
        assert_eq!(told[VARY], VARY_PREFLIGHT);
    }

    #[test]
    fn a_reply_says_which_origin_may_read_it() {
        let cors = cors(vec![rule(&["http://a.example"], &["GET"], &[])]);
        let reply = |origin: &str, method: Method| {
            let mut reply = HeaderMap::new();
            cors.say(&method, &asking(origin, "GET", ""), &mut reply);
            assert_eq!(reply[VARY], "Origin");
            said(&reply, &ACCESS_CONTROL_ALLOW_ORIGIN)
        };
        assert_eq!(reply("http://a.example", Method::GET), "http://a.example");
        assert_eq!(reply("http://a.example", Method::HEAD), "");
        assert_eq!(reply("http://A.example", Method::GET), "");
        assert_eq!(reply("http://b.example", Method::GET), "");
        let mut twice = asking("http://a.example", "GET", "");
        twice.append(ORIGIN, HeaderValue::from_static("http://a.example"));
        let mut told = HeaderMap::new();
        cors.say(&Method::GET, &twice, &mut told);
        assert!(!told.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
        vary(&mut told);
        assert_eq!(told.get_all(VARY).iter().count(), 1);
    }

    #[test]
    fn preflights_of_no_browser_are_refused() {
        let cors = cors(vec![rule(&["*"], &["GET"], &["*"])]);
        let many = vec!["a"; limits::PREFLIGHT_HEADERS + 1].join(",");
        for (origin, method, headers) in [
            ("", "GET", ""),
            ("http://a b", "GET", ""),
            ("http://a,http://b", "GET", ""),
            ("http://a", "PATCH", ""),
            ("http://a", "get", ""),
            ("http://a", "GET", "a b"),
            ("http://a", "GET", &many),
        ] {
            let refused = cors.preflight(&asking(origin, method, headers));
            assert!(matches!(refused, Err(Refusal::Malformed(_))), "{origin} {method} {headers}");
        }
    }

    proptest! {
        #[test]
        fn an_origin_that_is_sent_back_is_the_one_that_asked(
            pattern in "[a-c.:/]{0,4}\\*?[a-c.:/]{0,4}", origin in "[ -~]{0,12}",
        ) {
            let cors = cors(vec![rule(&[&pattern], &["GET"], &[])]);
            let asked = asking(&origin, "GET", "");
            let mut reply = HeaderMap::new();
            cors.say(&Method::GET, &asked, &mut reply);
            match said(&reply, &ACCESS_CONTROL_ALLOW_ORIGIN).as_str() {
                "" => {}
                "*" => {
                    prop_assert_eq!(pattern, "*");
                    prop_assert!(!reply.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS));
                }
                told => {
                    let (start, end) = pattern.split_once('*').unwrap_or((&pattern, ""));
                    prop_assert!(told == origin && told.starts_with(start) && told.ends_with(end));
                }
            }
        }
    }
}
