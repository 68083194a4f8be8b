//! The door for websites: a public bucket by the name of the host, with its documents and
//! redirects. Its pages may run scripts, so nothing else has these host names.
//!
//! ```text
//!   Host ──► bucket ──► a redirect, or a key ──► the object, or the index document ──► reply
//!                                      └── not there ──► a redirect, or the error document
//! ```

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::inflight::{About, Request as InFlight};
use cairn_base::{Error, Result, Rng, Scope, stage};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::FindBucket;
use cairn_fs::rows::{WebRedirect, WebRule, Website};
use http::header::{ALLOW, CACHE_CONTROL, HOST, LOCATION, VARY};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use maud::html;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::RequestIds;
use super::get::{self, ReadRequest};
use super::reply::Reply;
use super::served_request::ServedRequest;
use super::target::decode;
use super::{Body, no_content, page};
use crate::admit::anonymous;
use crate::cors::{self, Cors, Policy, Refusal};
use crate::host;
use crate::metrics::{DoorMetrics, Metrics, VerbStats};
use crate::serve::{Door, Remote};
use crate::upload::Upload;
use crate::witness::Witness;

const METHODS: &str = "GET, HEAD, OPTIONS";
/// Policy of pages of other sites: they see the headers that a rule exposes, and know no
/// credentials of this door.
const POLICY: Policy = Policy { credentials: false, exposed: "" };
/// All characters that are neither unreserved according to RFC 3986 nor the slash.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// All ASCII characters that a fragment cannot have.
const NOT_IN_FRAGMENTS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'\\')
    .add(b'^')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Serves buckets as websites.
#[derive(Clone)]
pub struct WebsiteDoor {
    inner: Arc<Inner>,
}

struct Inner {
    fs: Fs,
    /// Domains whose subdomains name buckets; any other host is itself the name of a bucket.
    domains: Vec<String>,
    ids: RequestIds,
    metrics: Arc<Metrics>,
    get: Arc<VerbStats>,
    other: Arc<VerbStats>,
}

impl WebsiteDoor {
    pub fn new(fs: Fs, rng: &dyn Rng, metrics: &DoorMetrics, domains: Vec<String>) -> WebsiteDoor {
        let ids = RequestIds::new(rng.next_u64());
        let [get, other] = ["get", "other"].map(|verb| metrics.verb(verb));
        let domains = domains.into_iter().map(|domain| domain.to_ascii_lowercase()).collect();
        let metrics = Arc::clone(metrics.all());
        WebsiteDoor { inner: Arc::new(Inner { fs, domains, ids, metrics, get, other }) }
    }
}

impl Door for WebsiteDoor {
    type Body = Body;
    type Reply = Reply;

    fn call(&self, peer: Remote, request: Request<Upload>) -> Reply {
        let stages = self.inner.metrics.observer().begin(request.headers(), peer.address.ip());
        let (inner, method) = (Arc::clone(&self.inner), request.method().clone());
        let uri = request.uri().clone();
        let about = move || About {
            door: "website",
            operation: method.to_string().into(),
            object: uri.path().to_owned(),
            client: peer.address.to_string(),
            ..About::default()
        };
        let in_flight = InFlight::new(Some(stages.trace), about);
        let answer = Box::pin(async move { inner.answer(peer, request).await });
        Reply::Later(Scope::of(stages, in_flight, answer))
    }
}

/// A request for a page of a website.
struct PageRequest<'a> {
    parts: &'a Parts,
    bucket: &'a str,
    website: &'a Website,
    caller: &'a Caller,
    /// The path without its first slash, decoded.
    key: &'a str,
    scheme: &'static str,
    host: &'a str,
}

impl PageRequest<'_> {
    /// Returns the query with its question mark, or nothing.
    fn query(&self) -> String {
        self.parts.uri.query().map_or_else(String::new, |query| format!("?{query}"))
    }
}

impl Inner {
    async fn answer(&self, peer: Remote, request: Request<Upload>) -> Response<Body> {
        let named = host::check(&request);
        let (parts, _) = request.into_parts();
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        let stats = if is_read { &self.get } else { &self.other };
        let reply = match named {
            Ok(()) if cors::is_preflight(&parts.method, &parts.headers) => {
                self.preflight(&parts).await
            }
            _ if !is_read => {
                let mut reply = said(StatusCode::METHOD_NOT_ALLOWED);
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
                reply
            }
            Err(_) => said(StatusCode::BAD_REQUEST),
            Ok(()) => self.find(peer, &parts).await,
        };
        let stages = stage::snapshot().expect("the reply is a scope");
        let (method, path, is_anonymous) = (&parts.method, parts.uri.path(), true);
        ServedRequest { peer, method, path, is_anonymous, stages }.finish(reply, stats)
    }

    /// Answers a preflight by the rules of the bucket, to any client: browsers send it without
    /// credentials.
    async fn preflight(&self, parts: &Parts) -> Response<Body> {
        let witness = Witness::of(&parts.extensions);
        witness.note(|facts| facts.is_preflight = true);
        let Some(host) = host_of(parts) else { return said(StatusCode::BAD_REQUEST) };
        let bucket = bucket_of(host.host(), &self.domains);
        let cors = Cors::of(&self.fs, Some(&bucket), POLICY).await;
        let told = cors.map_err(Refusal::from).and_then(|cors| cors.preflight(&parts.headers));
        let mut reply = match told {
            Ok(told) => {
                let mut reply = no_content();
                *reply.headers_mut() = told;
                reply
            }
            Err(Refusal::Malformed(_)) => said(StatusCode::BAD_REQUEST),
            Err(Refusal::NotAllowed) => said(StatusCode::FORBIDDEN),
            Err(Refusal::Failed(error)) => failed(&error),
        };
        reply.headers_mut().insert(VARY, cors::VARY_PREFLIGHT);
        reply
    }

    async fn find(&self, peer: Remote, parts: &Parts) -> Response<Body> {
        let Some(host) = host_of(parts) else { return said(StatusCode::BAD_REQUEST) };
        let bucket = bucket_of(host.host(), &self.domains);
        let key = parts.uri.path().strip_prefix('/').map(decode);
        let Some(Ok(key)) = key else { return said(StatusCode::BAD_REQUEST) };
        let witness = Witness::of(&parts.extensions);
        witness.note(|facts| {
            facts.bucket = Some(bucket.clone());
            facts.key = Some(key.to_string());
            facts.operation = Some("website");
        });
        let verb = FindBucket { name: bucket.clone() };
        let found = self.fs.read(&Caller::system(), verb).await;
        let website = found.and_then(|found| match found {
            Some(opened) => opened.bucket.website.decode(),
            None => Ok(None),
        });
        let website = match website {
            Ok(Some(website)) => website,
            Ok(None) => return said(StatusCode::NOT_FOUND),
            Err(error) => return failed(&error),
        };
        let caller = anonymous(peer);
        let asked = PageRequest {
            parts,
            bucket: &bucket,
            website: &website,
            caller: &caller,
            key: &key,
            scheme: if peer.tls { "https" } else { "http" },
            host: host.as_str(),
        };
        let mut reply = self.serve(&asked).await;
        let page = Cors::of_page(&self.fs, &parts.headers, Some(&bucket), POLICY).await;
        if let Some(page) = page {
            page.say(&parts.method, &parts.headers, reply.headers_mut());
        }
        reply
    }

    async fn serve(&self, asked: &PageRequest<'_>) -> Response<Body> {
        if let Some(to) = &asked.website.redirect_all {
            return redirect(asked, to, "");
        }
        if let Some(rule) = rule_for(asked, 0) {
            return redirect(asked, &rule.to, &rule.prefix);
        }
        let is_directory = asked.key.is_empty() || asked.key.ends_with('/');
        let index = &asked.website.index;
        let key = if is_directory { format!("{}{index}", asked.key) } else { asked.key.to_owned() };
        let error = match self.object(asked, &key, &asked.parts.headers).await {
            Ok(reply) => return reply,
            Err(error) => error,
        };
        if let Error::NotFound(_) = &error
            && !is_directory
            && self.fs.open(asked.caller, asked.bucket, &format!("{key}/{index}")).await.is_ok()
        {
            return to_directory(asked);
        }
        let witness = Witness::of(&asked.parts.extensions);
        witness.note(|facts| facts.reason = Some(error.kind().to_owned()));
        let failure = failed(&error);
        let status = failure.status();
        if let Some(rule) = rule_for(asked, status.as_u16()) {
            return redirect(asked, &rule.to, &rule.prefix);
        }
        if status.is_client_error() && !asked.website.error.is_empty() {
            let shown = self.object(asked, &asked.website.error, &HeaderMap::new()).await;
            if let Ok(mut reply) = shown {
                *reply.status_mut() = status;
                reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                return reply;
            }
        }
        failure
    }

    async fn object(
        &self,
        asked: &PageRequest<'_>,
        key: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Body>> {
        let method = &asked.parts.method;
        let read = ReadRequest { method, headers, query: None, key, is_website: true };
        let place = (asked.bucket, key);
        let object = self
            .fs
            .open_for(asked.caller, place.0, place.1, |object| get::sent(&read, object))
            .await?;
        get::reply(&read, &object, || self.ids.next())
    }
}

fn host_of(parts: &Parts) -> Option<Authority> {
    match parts.uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => parts.headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok()),
    }
}

/// Returns the bucket of a host: its name without one of the domains, or the whole name.
fn bucket_of(host: &str, domains: &[String]) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let below = |domain: &String| host.strip_suffix(domain.as_str())?.strip_suffix('.');
    match domains.iter().find_map(below) {
        Some(bucket) => bucket.to_owned(),
        None => host,
    }
}

/// Returns the first rule for a request that is answered with `status`, or is not answered yet (0).
fn rule_for<'a>(asked: &PageRequest<'a>, status: u16) -> Option<&'a WebRule> {
    let rules = &asked.website.rules;
    rules.iter().find(|rule| rule.status == status && asked.key.starts_with(&rule.prefix))
}

/// Redirects a browser. A key of the request never becomes a part of the host.
fn redirect(asked: &PageRequest<'_>, to: &WebRedirect, prefix: &str) -> Response<Body> {
    let protocol = if to.protocol.is_empty() { asked.scheme } else { &to.protocol };
    let host = if to.host.is_empty() { asked.host } else { &to.host };
    let (written, rest) = match (&to.key, &to.prefix) {
        (Some(key), _) => (key.as_str(), ""),
        (None, Some(new)) => (new.as_str(), asked.key.strip_prefix(prefix).unwrap_or_default()),
        (None, None) => ("", asked.key),
    };
    let location = format!("{protocol}://{host}/{}", path_of(written, rest, &asked.query()));
    let status = StatusCode::from_u16(to.status).unwrap_or(StatusCode::MOVED_PERMANENTLY);
    moved(status, location)
}

/// Returns the path of a redirect: what the owner of the website wrote, and the rest of a key. The
/// owner's text may have a fragment, which goes behind the query.
fn path_of(written: &str, rest: &str, query: &str) -> String {
    let escaped = |key| utf8_percent_encode(key, ESCAPED);
    match written.split_once('#') {
        None => format!("{}{}{query}", escaped(written), escaped(rest)),
        Some((key, fragment)) => {
            let fragment = utf8_percent_encode(fragment, NOT_IN_FRAGMENTS);
            format!("{}{query}#{fragment}{}", escaped(key), escaped(rest))
        }
    }
}

/// Redirects to the same path with a slash behind it. It begins with one slash: two slashes would
/// begin a host.
fn to_directory(asked: &PageRequest<'_>) -> Response<Body> {
    let path = utf8_percent_encode(asked.key, ESCAPED).to_string();
    let path = match path.strip_prefix('/') {
        Some(rest) => format!("%2F{rest}"),
        None => path,
    };
    moved(StatusCode::FOUND, format!("/{path}/{}", asked.query()))
}

fn moved(status: StatusCode, location: String) -> Response<Body> {
    let Ok(location) = HeaderValue::try_from(location) else {
        return said(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let mut reply = said(status);
    reply.headers_mut().insert(LOCATION, location);
    reply
}

/// Answers if the store fails.
fn failed(error: &Error) -> Response<Body> {
    said(match error {
        Error::NotFound(_) | Error::NotDirectory(_) | Error::IsDirectory(_) => {
            StatusCode::NOT_FOUND
        }
        Error::Denied(_) => StatusCode::FORBIDDEN,
        Error::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
        Error::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        other => {
            tracing::error!(error = %other, "a page of a website cannot be read");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    })
}

/// Returns a status as a page.
fn said(status: StatusCode) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or("Error");
    page::reply(status, title, &html! { h1 { (status.as_u16()) " " (title) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_of_a_rule_stays_as_it_was_written() {
        for (written, rest, query, path) in [
            ("new/", "a b#c", "", "new/a%20b%23c"),
            ("#!/", "x/y", "", "#!/x/y"),
            ("#/", "x?#", "?a=1", "?a=1#/x%3F%23"),
            ("app.html#/p/%20 \"é?a=b&c", "", "?q", "app.html?q#/p/%20%20%22%C3%A9?a=b&c"),
        ] {
            assert_eq!(path_of(written, rest, query), path, "{written} {rest}");
        }
    }

    #[test]
    fn a_host_is_a_bucket_or_begins_with_one() {
        let domains = ["sites.example".to_owned(), "web.test".to_owned()];
        for (host, bucket) in [
            ("blog.sites.example", "blog"),
            ("Blog.Sites.Example.", "blog"),
            ("a.b.web.test", "a.b"),
            ("www.example.com", "www.example.com"),
            ("sites.example", "sites.example"),
            ("evilsites.example", "evilsites.example"),
        ] {
            assert_eq!(bucket_of(host, &domains), bucket, "{host}");
        }
    }
}
