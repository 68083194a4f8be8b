//! `/healthz`, `/readyz` and `/metrics`.

use cairn_base::{Error, Result};
use cairn_fs::Fs;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Response, StatusCode};
use serde::Serialize;

use super::{Body, json_of};
use crate::metrics::{Form, Metrics};

#[derive(Serialize)]
struct ShownHealth {
    ready: bool,
    /// Why not.
    reasons: Vec<String>,
}

/// The process is up, no more.
pub fn health() -> Response<Body> {
    let mut reply = Response::new(Body::Full("ok\n".into()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// Reads and writes can be expected to succeed.
pub async fn ready(fs: &Fs) -> Response<Body> {
    let mut reasons = Vec::new();
    if let Some(failure) = fs.meta().failed() {
        tracing::error!(%failure, "not ready");
        reasons.push("the master has ended, or none can be reached".to_owned());
    }
    match fs.blocks().usage().await {
        Ok(usage) if usage.poisoned_segments > 0 => {
            reasons.push(format!("{} segments of blocks failed", usage.poisoned_segments));
        }
        Ok(_) => {}
        Err(error) => {
            tracing::error!(%error, "not ready: the block store");
            reasons.push(format!("the block store: {}", error.kind()));
        }
    }
    if let Err(error) = fs.blocks().available() {
        reasons.push(error.to_string());
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_of(status, &ShownHealth { ready, reasons })
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
