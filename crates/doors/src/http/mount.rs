//! `GET /mount`: the address to which mounts connect. A mount shows its credentials like any other
//! request; the connection is then its own, and everything that the mount asks over it is asked by
//! that user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::{Action, Caller, Principal, Resource, authorize};
use cairn_base::{Error, Result, UserId};
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};

use super::Body;
use crate::admit::Admit;
use crate::serve::Remote;
use crate::upload::Upload;

/// The protocol that is asked for, with its version.
const PROTOCOL: &str = "cairn-mount/2";
const CAIRN_USER: HeaderName = HeaderName::from_static("cairn-user");
/// Period at which the credentials are checked again.
const LOOK: Duration = Duration::from_secs(5);
/// Time for which a mount may go on while its credentials cannot be checked: a lease.
const UNKNOWN: Duration = Duration::from_secs(10);

/// A connection whose other end is a mount.
pub trait MountStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> MountStream for T {}

/// A mount that has connected.
pub struct ConnectedMount {
    /// The user whose credentials it showed.
    pub caller: Caller,
    pub address: SocketAddr,
    pub stream: Box<dyn MountStream>,
    /// Becomes true when the credentials are no longer valid.
    pub revoked: Arc<AtomicBool>,
}

/// Takes over mounts, and serves them in tasks of its own.
#[derive(Clone)]
pub struct Mounts(Arc<dyn Fn(ConnectedMount) + Send + Sync>);

impl Mounts {
    pub fn new(take: impl Fn(ConnectedMount) + Send + Sync + 'static) -> Mounts {
        Mounts(Arc::new(take))
    }
}

/// Returns the upgrade of the connection, if the request asks for this protocol.
pub fn wanted(request: &mut Request<Upload>) -> Option<OnUpgrade> {
    let asked = request.headers().get(UPGRADE)?;
    let is_ours = asked == PROTOCOL && request.uri().path() == "/mount";
    is_ours.then(|| hyper::upgrade::on(request))
}

/// Hands over the connection once the reply is sent.
pub fn take(
    admit: &Arc<Admit>,
    mounts: Option<&Mounts>,
    peer: Remote,
    headers: &HeaderMap,
    caller: &Caller,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>> {
    let Some(mounts) = mounts.cloned() else {
        return Err(Error::NotImplemented(
            "mounts at this door: name the HTTP door of a server or gateway".into(),
        ));
    };
    let context = caller.context(admit.fs().clock().now());
    authorize(caller, Action::Mount, Resource::Store, &context)?;
    let Principal::User(user) = caller.principal() else {
        return Err(Error::Denied(
            "a mount needs credentials: set CAIRN_KEY and CAIRN_SECRET".into(),
        ));
    };
    let (admit, headers, caller) = (Arc::clone(admit), headers.clone(), caller.clone());
    tokio::spawn(async move {
        let Some(upgrade) = upgrade else { return };
        let stream = match upgrade.await {
            Ok(upgraded) => Box::new(TokioIo::new(upgraded)),
            Err(error) => return tracing::debug!(%error, "a mount did not connect"),
        };
        let (address, revoked) = (peer.address, Arc::new(AtomicBool::new(false)));
        let watched = Arc::downgrade(&revoked);
        mounts.0(ConnectedMount { caller, address, stream, revoked });
        let mut standing = Standing::default();
        while let Some(revoked) = watched.upgrade() {
            let holds = admit.holds(&headers, user).await;
            if !standing.goes_on(holds, Instant::now()) {
                revoked.store(true, Ordering::SeqCst);
                return;
            }
            drop(revoked);
            sleep(LOOK).await;
        }
    });
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    // The user for whom the mount decides which requests it may answer from memory.
    reply.headers_mut().insert(CAIRN_USER, HeaderValue::from(user.0));
    Ok(reply)
}

/// Returns when the credentials in `headers` are no longer those of `user`: for a mount that uses
/// no door, since it is a gateway itself. While that cannot be checked no master answers, and the
/// mount shows nothing for longer than a lease.
pub async fn until_revoked(admit: &Admit, headers: &HeaderMap, user: UserId) {
    while !matches!(admit.holds(headers, user).await, Ok(false)) {
        sleep(LOOK).await;
    }
}

/// The state of a mount's credentials.
#[derive(Default)]
struct Standing {
    /// Time since which they cannot be checked.
    unknown: Option<Instant>,
}

impl Standing {
    /// Returns whether the mount may go on after a check. If the check fails for long, it may not.
    fn goes_on(&mut self, holds: Result<bool>, now: Instant) -> bool {
        match holds {
            Ok(holds) => {
                self.unknown = None;
                holds
            }
            Err(error) => {
                tracing::debug!(%error, "the credentials of a mount could not be looked at");
                now.duration_since(*self.unknown.get_or_insert(now)) < UNKNOWN
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_decided_for_long_ends_a_mount() {
        let mut standing = Standing::default();
        let (begun, failed) = (Instant::now(), || Err(Error::Unavailable("no master".into())));
        let late = begun + UNKNOWN * 3;
        assert!(standing.goes_on(Ok(true), begun));
        assert!(standing.goes_on(failed(), begun) && standing.goes_on(failed(), begun + LOOK));
        assert!(standing.goes_on(Ok(true), begun + LOOK));
        assert!(standing.goes_on(failed(), late), "it is counted from the first failure");
        assert!(!standing.goes_on(failed(), late + UNKNOWN));
        assert!(!Standing::default().goes_on(Ok(false), begun));
    }
}
