//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;

use cairn_base::{Error, Result};
use cairn_fs::{Fs, MetaStats};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Response, StatusCode};
use serde::Serialize;

use super::{Body, json_of};
use crate::metrics::{Form, Metrics};

/// One of the things that a process needs to do its work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Condition {
    pub name: &'static str,
    pub met: bool,
    /// The state in words: why it is not met, or how it is.
    pub state: String,
}

impl Condition {
    /// A condition that is met unless there is a reason.
    pub fn unless(name: &'static str, reason: Option<String>) -> Condition {
        let met = reason.is_none();
        Condition { name, met, state: reason.unwrap_or_else(|| "ok".to_owned()) }
    }
}

/// The readiness of a process that has no store behind its doors, as it is now.
pub type Readiness = Arc<dyn Fn() -> Vec<Condition> + Send + Sync>;

#[derive(Serialize)]
struct ShownReadiness {
    ready: bool,
    role: &'static str,
    /// Why not.
    reasons: Vec<String>,
    conditions: Vec<Condition>,
}

/// The process is up, no more.
pub fn health() -> Response<Body> {
    let mut reply = Response::new(Body::Full("ok\n".into()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// Whether reads and writes can be expected to succeed at a server or gateway.
pub async fn ready(fs: &Fs) -> Response<Body> {
    let (role, metadata) = match fs.meta().stats() {
        MetaStats::Local(_) => ("server", "metadata"),
        MetaStats::Remote(_) => ("gateway", "master"),
    };
    let failed = fs.meta().failed().map(|failure| {
        tracing::error!(%failure, "not ready");
        "the master has ended, or none can be reached".to_owned()
    });
    let blocks = match fs.blocks().usage().await {
        Ok(usage) if usage.poisoned_segments > 0 => {
            Some(format!("{} segments of blocks failed", usage.poisoned_segments))
        }
        Ok(_) => None,
        Err(error) => {
            tracing::error!(%error, "not ready: the block store");
            Some(format!("the block store: {}", error.kind()))
        }
    };
    let members = fs.blocks().available().err().map(|error| error.to_string());
    let mut conditions =
        vec![Condition::unless(metadata, failed), Condition::unless("blocks", blocks)];
    if role == "gateway" || members.is_some() {
        conditions.push(Condition::unless("chunkservers", members));
    }
    readiness(role, conditions)
}

/// The answer to `/readyz`.
pub fn readiness(role: &'static str, conditions: Vec<Condition>) -> Response<Body> {
    let unmet = conditions.iter().filter(|condition| !condition.met);
    let reasons: Vec<String> = unmet.map(|condition| condition.state.clone()).collect();
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_of(status, &ShownReadiness { ready, role, reasons, conditions })
}

/// Counters, for root and for this machine.
pub async fn metrics(
    metrics: &Metrics,
    headers: &HeaderMap,
    (may_see, may_see_names): (bool, bool),
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
