//! The records of requests, for the audit and the access log. [`crate::serve`] makes them, so that
//! no door can forget it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cairn_audit::{AccessRecord, Actor, AuditOutcome, AuditRecord, LineLog, cut};
use cairn_auth::share_link_of;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use crate::pacing::{Pacing, PacingAccount, with_held};
use crate::places::Place;
use crate::traffic::{RequestSummary, Traffic};
use crate::upload::Upload;
use crate::witness::{Facts, Witness};

/// Parts of names of query parameters that are secrets, or might be.
const SECRETS: [&str; 5] = ["sig", "token", "secret", "password", "authorization"];

/// The path of the HTTP door below which share links are.
pub(crate) const SHARED: &str = "/s/";
/// Number of characters of a name there that are shown if it cannot be the token of a link.
const SHOWN_CHARS: usize = 8;

/// Returns a path without the secrets of share links in it.
pub(crate) fn without_token(path: &str) -> Cow<'_, str> {
    let path = without_token_below_shared(path);
    let link_of = |name: &str| share_link_of(&percent_decode_str(name).decode_utf8_lossy());
    if !path.split('/').any(|name| link_of(name).is_some()) {
        return path;
    }
    let shown = path.split('/').map(|name| match link_of(name) {
        Some(id) => format!("{id}-..."),
        None => name.to_owned(),
    });
    Cow::Owned(shown.collect::<Vec<_>>().join("/"))
}

/// Returns a path below [`SHARED`] without the part of its token that could be secret.
fn without_token_below_shared(path: &str) -> Cow<'_, str> {
    let Some(rest) = path.strip_prefix(SHARED) else { return Cow::Borrowed(path) };
    let (token, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if token.chars().count() <= SHOWN_CHARS {
        return Cow::Borrowed(path);
    }
    let id = match token.match_indices('-').nth(1) {
        Some((at, _)) => token.get(..at).unwrap_or_default().to_owned(),
        None => token.chars().take(SHOWN_CHARS).collect(),
    };
    Cow::Owned(format!("{SHARED}{id}-...{below}"))
}

/// The destinations of a door's records.
#[derive(Clone, Debug, Default)]
pub struct Records {
    door: &'static str,
    audit: Option<LineLog>,
    access: Option<LineLog>,
    traffic: Option<Arc<Traffic>>,
}

impl Records {
    pub fn new(audit: Option<LineLog>, access: Option<LineLog>) -> Records {
        Records { door: "", audit, access, traffic: None }
    }

    /// Also counts requests while a client asks for the counts.
    pub fn counting(self, traffic: &Arc<Traffic>) -> Records {
        Records { traffic: Some(Arc::clone(traffic)), ..self }
    }

    /// Returns the same destinations for another door.
    pub fn of(&self, door: &'static str) -> Records {
        Records { door, ..self.clone() }
    }

    pub fn audit(&self) -> Option<&LineLog> {
        self.audit.as_ref()
    }

    /// Begins a request. Its records are made when the returned value is dropped.
    pub(crate) fn begin(
        &self,
        source: IpAddr,
        request: &mut Request<Upload>,
    ) -> Option<RecordedRequest> {
        let is_counted = self.traffic.as_ref().is_some_and(|traffic| traffic.is_watched());
        if self.audit.is_none() && self.access.is_none() && !is_counted {
            return None;
        }
        let witness = Witness::new();
        request.extensions_mut().insert(witness.clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let (records, began) = (self.clone(), Instant::now());
        let answer = Answer::default();
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        Some(RecordedRequest(Box::new(InProgress {
            records,
            source,
            method,
            uri,
            witness,
            began,
            received_bytes: length.unwrap_or_default(),
            answer,
        })))
    }
}

/// A request in progress, or its reply.
pub(crate) struct RecordedRequest(Box<InProgress>);

struct InProgress {
    records: Records,
    source: IpAddr,
    method: Method,
    uri: Uri,
    witness: Witness,
    began: Instant,
    /// Length of the body as the client states it.
    received_bytes: u64,
    answer: Answer,
}

#[derive(Default)]
struct Answer {
    status: Option<u16>,
    bytes: u64,
    request: Option<String>,
    /// Trace, as in the reply's header.
    trace: Option<HeaderValue>,
}

impl RecordedRequest {
    fn answered<B>(&mut self, response: &Response<B>) {
        let headers = response.headers();
        let answer = &mut self.0.answer;
        answer.status = Some(response.status().as_u16());
        answer.request = text(headers, "x-amz-request-id").or(text(headers, "x-request-id"));
        answer.trace = headers.get("traceresponse").cloned();
    }
}

/// Returns the id within a `traceresponse`: `00-<trace>-<span>-<flags>`.
fn trace_of(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()?.split('-').nth(1)
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

impl Drop for RecordedRequest {
    fn drop(&mut self) {
        let facts = self.0.witness.take();
        if let Some(log) = &self.0.records.access {
            log.note_access(self.0.accessed(&facts));
        }
        if !facts.is_of_traffic
            && let Some(traffic) = self.0.records.traffic.as_ref().filter(|all| all.is_watched())
        {
            traffic.count(self.0.passed(&facts));
        }
        if let Some(log) = &self.0.records.audit
            && let Some(outcome) = self.0.outcome(&facts)
        {
            log.note(self.0.audited(outcome, facts));
        }
    }
}

impl InProgress {
    /// Returns the outcome for the audit; `None` if the request asked for no change, and was not
    /// refused.
    fn outcome(&self, facts: &Facts) -> Option<AuditOutcome> {
        let status = self.answer.status;
        if let Some(outcome) = facts.late {
            return Some(outcome);
        }
        if facts.is_preflight {
            return None;
        }
        if let Some((outcome, _)) = facts.partial() {
            return Some(outcome);
        }
        if facts.is_refused || matches!(status, Some(401 | 403)) {
            return Some(AuditOutcome::Refused);
        }
        let is_safe = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let is_change = facts.has_changed || !is_safe;
        if !is_change && status != Some(101) {
            return None;
        }
        Some(match status {
            Some(..400) => AuditOutcome::Done,
            Some(400..=499 | 501) => AuditOutcome::Failed,
            None | Some(_) => AuditOutcome::Unknown,
        })
    }

    fn actor(&self, facts: &Facts) -> Actor {
        let nobody = || Actor { source: Some(self.source), ..Actor::default() };
        facts.actor.clone().unwrap_or_else(nobody)
    }

    fn audited(&self, outcome: AuditOutcome, facts: Facts) -> AuditRecord {
        let actor = self.actor(&facts);
        let partial = facts.partial().map(|(_, why)| why);
        let Facts { operation, bucket, key, keys, resource, reason, .. } = facts;
        let Answer { status, request, trace, .. } = &self.answer;
        AuditRecord {
            door: self.records.door,
            operation: operation.map_or_else(|| self.method.to_string().into(), Cow::Borrowed),
            outcome,
            reason: partial
                .or(reason)
                .filter(|_| outcome != AuditOutcome::Done)
                .as_deref()
                .map(short),
            actor,
            bucket: bucket.as_deref().map(short),
            key: key.as_deref().map(short),
            keys,
            resource: resource.as_deref().map(short),
            method: Some(self.method.to_string()),
            path: Some(short(&without_token(self.uri.path()))),
            query: self.uri.query().map(|query| without_secrets(query).into_owned()),
            status: status.map(u32::from),
            request: request.clone(),
            trace: trace.as_ref().and_then(trace_of).map(str::to_owned),
            ..AuditRecord::default()
        }
    }

    fn passed(&self, facts: &Facts) -> RequestSummary {
        let Answer { status, bytes, trace, .. } = &self.answer;
        RequestSummary {
            door: self.records.door,
            operation: facts.operation.unwrap_or(self.method.as_str()).to_owned(),
            user: facts.actor.as_ref().and_then(|actor| actor.user),
            bucket: facts.bucket.as_deref().map(short),
            key: facts.key.as_deref().map(short),
            status: *status,
            received_bytes: self.received_bytes,
            sent_bytes: *bytes,
            took: self.began.elapsed(),
            trace: trace.as_ref().and_then(trace_of).map(str::to_owned),
        }
    }

    fn accessed(&self, facts: &Facts) -> AccessRecord<'_> {
        let Answer { status, bytes, request, trace } = &self.answer;
        AccessRecord {
            door: self.records.door,
            method: self.method.as_str(),
            path: match without_token(self.uri.path()) {
                Cow::Borrowed(path) => Cow::Borrowed(cut(path)),
                Cow::Owned(path) => Cow::Owned(short(&path)),
            },
            query: self.uri.query().map(without_secrets),
            status: *status,
            bytes: *bytes,
            us: self.began.elapsed().as_micros() as u64,
            actor: self.actor(facts),
            request: request.as_deref(),
            trace: trace.as_ref().and_then(trace_of),
            ..AccessRecord::default()
        }
    }
}

fn short(text: &str) -> String {
    cut(text).to_owned()
}

/// Returns a query without the values of parameters that are secrets, however their names are
/// written.
fn without_secrets(query: &str) -> Cow<'_, str> {
    let query = cut(query);
    let is_secret = |name: &str| {
        let name = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
        SECRETS.iter().any(|secret| name.contains(secret))
    };
    let name_of = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
    if !query.split('&').any(|pair| is_secret(&name_of(pair))) {
        return Cow::Borrowed(query);
    }
    let shown = query.split('&').map(|pair| match name_of(pair) {
        name if is_secret(&name) => format!("{name}=..."),
        _ => pair.to_owned(),
    });
    Cow::Owned(shown.collect::<Vec<_>>().join("&"))
}

/// The body of a reply. It notes when it was sent, and is sent no faster than its user's limit
/// allows.
pub struct RecordedBody<B> {
    /// `None`: the reply has no bytes.
    body: Option<B>,
    /// The place of the request, until everything is sent.
    _place: Option<Place>,
    recorded: Option<RecordedRequest>,
    pacing: Option<Pacing>,
}

/// Returns the reply to a request that is recorded.
pub(crate) fn of_reply<B>(
    mut reply: Response<B>,
    mut recorded: Option<RecordedRequest>,
    place: Option<Place>,
) -> Response<RecordedBody<B>> {
    let pacing = reply.extensions_mut().remove::<PacingAccount>().map(PacingAccount::begin);
    if let Some(recorded) = &mut recorded {
        recorded.answered(&reply);
    }
    reply.map(|body| RecordedBody { body: Some(body), _place: place, recorded, pacing })
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for RecordedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let mut body = Pin::new(body);
        let polled = match &mut this.pacing {
            Some(pacing) => pacing.poll_frame(context, |context| body.as_mut().poll_frame(context)),
            None => body.as_mut().poll_frame(context),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(recorded) = &mut this.recorded
        {
            recorded.0.answer.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.held() == 0 && self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint);
        with_held(hint, self.held())
    }
}

impl<B> RecordedBody<B> {
    /// Returns the body of a reply without bytes, and without a record.
    pub(crate) fn empty() -> RecordedBody<B> {
        RecordedBody { body: None, _place: None, recorded: None, pacing: None }
    }

    /// Returns the number of bytes that wait because of the user's limit.
    fn held(&self) -> u64 {
        self.pacing.as_ref().map_or(0, Pacing::held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_the_secrets_of_share_links() {
        for (path, shown) in [
            ("/s/12c-AAAABBBBCCCC-SECRETSECRET/a/b", "/s/12c-AAAABBBBCCCC-.../a/b"),
            ("/s/12c-AAAABBBBCCCC-SECRETSECRET", "/s/12c-AAAABBBBCCCC-..."),
            ("/s/12c%2DAAAABBBBCCCC%2DSECRETSECRET", "/s/12c%2DAA-..."),
            ("/s/SECRETSECRET", "/s/SECRETSE-..."),
            ("/s/x/y", "/s/x/y"),
            ("/storage/s/a-b-c", "/storage/s/a-b-c"),
        ] {
            assert_eq!(without_token(path), shown);
        }
    }

    #[test]
    fn paths_lose_whole_tokens_wherever_they_are() {
        let token = format!("12c-AAAABBBBCCCC-{}", "SECRET22".repeat(4));
        for (before, after) in [("//s/", "/a"), ("/s//", ""), ("/storage/", "/"), ("", "//b")] {
            let shown = format!("{before}12c-AAAABBBBCCCC-...{after}");
            assert_eq!(without_token(&format!("{before}{token}{after}")), shown);
            let escaped = token.replace('-', "%2D");
            assert_eq!(without_token(&format!("{before}{escaped}{after}")), shown);
        }
    }

    #[test]
    fn queries_lose_their_secrets() {
        for (query, shown) in [
            ("list-type=2&prefix=a%2Fb", "list-type=2&prefix=a%2Fb"),
            ("X-Amz-Signature=MARK", "X-Amz-Signature=..."),
            ("a=1&X-Amz-Security-Token=MARK&b", "a=1&X-Amz-Security-Token=...&b"),
            ("AWSAccessKeyId=AK&Signature=MARK%3D", "AWSAccessKeyId=AK&Signature=..."),
            ("x-amz-signatur%65=MARK", "x-amz-signatur%65=..."),
            ("%74oken=MARK=MARK", "%74oken=..."),
        ] {
            assert_eq!(without_secrets(query), shown);
        }
    }
}
