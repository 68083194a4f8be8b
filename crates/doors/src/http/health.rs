//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Result};
use cairn_fs::{Fs, MasterSilence, MetaStats};
use http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Method, Response, StatusCode};
use serde::Serialize;
use tokio::time::timeout;

use super::{Body, json_of};
use crate::metrics::{Form, Metrics};

/// A condition that a process needs to do its work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Condition {
    pub name: &'static str,
    pub met: bool,
    /// The state in words: the reason if the condition is not met, or a description.
    pub state: String,
}

impl Condition {
    /// Returns a condition that is met unless there is a reason.
    pub fn unless(name: &'static str, reason: Option<String>) -> Condition {
        let met = reason.is_none();
        Condition { name, met, state: reason.unwrap_or_else(|| "ok".to_owned()) }
    }
}

/// Returns the present conditions of a process without a store behind its doors.
pub type Readiness = Arc<dyn Fn() -> Vec<Condition> + Send + Sync>;

#[derive(Serialize)]
struct ShownReadiness {
    ready: bool,
    role: &'static str,
    /// Reasons why it is not ready.
    reasons: Vec<String>,
    conditions: Vec<Condition>,
}

/// Answers that the process is up, and nothing else.
pub fn health() -> Response<Body> {
    let mut reply = Response::new(Body::Full("ok\n".into()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// Returns whether reads and writes can be expected to succeed at a server or gateway.
pub async fn ready(fs: &Fs) -> Response<Body> {
    let (role, metadata) = match fs.meta().stats() {
        MetaStats::Local(_) => ("server", "metadata"),
        MetaStats::Remote(_) => ("gateway", "master"),
    };
    // If some chunkservers are cut off, the others do the work: `available` knows.
    let blocks = match timeout(BLOCKS_ANSWER, fs.blocks().usage()).await {
        Err(_) if role == "gateway" => None,
        Err(_) => Some("the block store does not answer".to_owned()),
        Ok(Ok(usage)) if usage.poisoned_segments > 0 => {
            Some(format!("{} segments of blocks failed", usage.poisoned_segments))
        }
        Ok(Ok(_)) => None,
        Ok(Err(error)) => {
            tracing::error!(%error, "not ready: the block store");
            Some(format!("the block store: {}", error.kind()))
        }
    };
    // Last: the block store may have taken its time.
    let master = match fs.meta().silence() {
        Some(silence) => master(&silence),
        None => Condition::unless(
            metadata,
            fs.meta().failed().map(|failure| {
                tracing::error!(%failure, "not ready");
                "the master has ended".to_owned()
            }),
        ),
    };
    let members = fs.blocks().available().err().map(|error| error.to_string());
    let mut conditions = vec![master, Condition::unless("blocks", blocks)];
    if role == "gateway" || members.is_some() {
        conditions.push(Condition::unless("chunkservers", members));
    }
    readiness(role, conditions)
}

/// Deadline for the answer of a working block store.
const BLOCKS_ANSWER: Duration = Duration::from_millis(700);
/// Time without a master from which on the reply mentions it: more than two beats of a node, and
/// less than 2 s together with the wait for blocks.
const SILENCE_SAID: Duration = Duration::from_millis(1200);
/// Time without a master from which on a gateway is not ready. An election is over by then.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);

/// Returns whether a gateway has a master. During an election it stays ready, as all gateways have
/// no master then, and still read leased rows. A gateway that alone reaches no master is not ready.
fn master(silence: &MasterSilence) -> Condition {
    let MasterSilence { lasts, cut_off } = silence;
    let secs = lasts.as_secs_f64();
    let (met, state) = match cut_off {
        _ if *lasts < SILENCE_SAID => (true, "ok".to_owned()),
        Some(why) => (false, format!("no master has answered for {secs:.1} s: {why}")),
        None if *lasts < SILENCE_LIMIT => (
            true,
            format!(
                "no master has answered for {secs:.1} s: changes wait for one; not ready from {} s on",
                SILENCE_LIMIT.as_secs()
            ),
        ),
        None => (false, format!("no master has answered for {secs:.1} s")),
    };
    Condition { name: "master", met, state }
}

/// Answers at a door that has nothing but `/healthz` and `/readyz`.
pub async fn probe(fs: &Fs, method: &Method, path: &str) -> Response<Body> {
    let said = |status, text: &'static str| {
        let mut reply = Response::new(Body::Full(text.into()));
        *reply.status_mut() = status;
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        reply
    };
    let mut reply = match path {
        _ if !matches!(*method, Method::GET | Method::HEAD) => {
            let mut reply = said(StatusCode::METHOD_NOT_ALLOWED, "this door takes GET and HEAD\n");
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            reply
        }
        "/healthz" => health(),
        "/readyz" => ready(fs).await,
        _ => said(StatusCode::NOT_FOUND, "this door has /healthz and /readyz only\n"),
    };
    if *method == Method::HEAD {
        *reply.body_mut() = Body::empty();
    }
    reply
}

/// Returns the answer to `/readyz`.
pub fn readiness(role: &'static str, conditions: Vec<Condition>) -> Response<Body> {
    let unmet = conditions.iter().filter(|condition| !condition.met);
    let reasons: Vec<String> = unmet.map(|condition| condition.state.clone()).collect();
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_of(status, &ShownReadiness { ready, role, reasons, conditions })
}

/// Answers with the counters, for root and for clients on this machine.
pub async fn metrics(
    metrics: &Metrics,
    headers: &HeaderMap,
    may_see: bool,
    may_see_names: bool,
) -> Result<Response<Body>> {
    if !may_see {
        let what = "metrics: only root, or requests from this machine";
        return Err(Error::Denied(what.into()));
    }
    let form = Form::asked(headers);
    let mut reply = Response::new(Body::Full(form.write(metrics.text(may_see_names).await).into()));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_without_a_master_says_so_and_stays_ready_for_an_election() {
        let at = |millis, cut_off: Option<&str>| {
            let lasts = Duration::from_millis(millis);
            let found = master(&MasterSilence { lasts, cut_off: cut_off.map(str::to_owned) });
            (found.met, found.state)
        };
        assert_eq!(at(900, None), (true, "ok".to_owned()));
        let (met, state) = at(2000, None);
        assert!(met && state.contains("no master has answered for 2.0 s"), "{state}");
        let (met, state) = at(2000, Some("none of the 3 masters can be reached"));
        assert!(!met && state.contains("2.0 s: none of the 3"), "{state}");
        assert!(!at(15_000, None).0);
    }
}
