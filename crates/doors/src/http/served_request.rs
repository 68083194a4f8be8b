//! A request that is answered, for the log and for metrics.

use std::sync::Arc;

use cairn_base::Stages;
use http::{HeaderMap, Method, Response, Uri};

use super::{Body, reply};
use crate::host;
use crate::metrics::VerbStats;
use crate::records::without_token;
use crate::serve::Remote;
use crate::timing;

/// The request, as the log shows it.
pub struct ServedRequest<'a> {
    pub peer: Remote,
    pub method: &'a Method,
    /// The path, in a form that may be logged.
    pub path: &'a str,
    pub is_anonymous: bool,
    pub stages: Stages,
}

impl ServedRequest<'_> {
    /// Finishes a reply: removes the body of a reply to HEAD, adds the time taken, logs the
    /// request, and counts it, now or when its last byte is sent.
    pub fn finish(self, mut reply: Response<Body>, stats: &Arc<VerbStats>) -> Response<Body> {
        if *self.method == Method::HEAD {
            reply::strip_body(&mut reply);
        }
        let status = reply.status().as_u16();
        timing::say(&mut reply, &self.stages, self.is_anonymous);
        tracing::debug!(
            trace = %self.stages.trace,
            peer = %self.peer.address,
            method = %self.method,
            path = %without_token(self.path),
            status,
            elapsed_us = self.stages.total().as_micros() as u64,
        );
        reply.body_mut().count(stats, status, &self.stages);
        reply
    }
}

/// Returns whether a request comes from this machine, was meant for it, and went through no proxy.
pub fn is_local(peer: Remote, uri: &Uri, headers: &HeaderMap) -> bool {
    let is_forwarded = |name: &str| {
        name.starts_with("x-forwarded-") || ["forwarded", "x-real-ip", "via"].contains(&name)
    };
    peer.address.ip().to_canonical().is_loopback()
        && host::is_loopback(uri, headers)
        && !headers.keys().any(|name| is_forwarded(name.as_str()))
}
