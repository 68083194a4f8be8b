//! `GET /mount`: where a mount connects. It shows its credentials as any request does; the
//! connection is then its own, and what it asks over it is asked by that user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::{Action, Caller, Principal, Resource, authorize};
use cairn_base::{Error, Result, UserId};
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::request::Parts;
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
/// How often there is a look whether the credentials still hold.
const LOOK: Duration = Duration::from_secs(5);
/// For how long a mount may go on while it cannot be found out whether they do: a lease.
const UNKNOWN: Duration = Duration::from_secs(10);

/// A connection whose other end is a mount.
pub trait MountStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> MountStream for T {}

/// A mount that has connected.
pub struct Mounted {
    /// The user whose credentials it showed.
    pub caller: Caller,
    pub address: SocketAddr,
    pub stream: Box<dyn MountStream>,
    /// Becomes true when the credentials hold no longer.
    pub revoked: Arc<AtomicBool>,
}

/// Takes mounts over: goes on with them in tasks of its own.
#[derive(Clone)]
pub struct Mounts(Arc<dyn Fn(Mounted) + Send + Sync>);

impl Mounts {
    pub fn new(take: impl Fn(Mounted) + Send + Sync + 'static) -> Mounts {
        Mounts(Arc::new(take))
    }
}

/// The upgrade of the connection, if the request asks for this protocol.
pub fn wanted(request: &mut Request<Upload>) -> Option<OnUpgrade> {
    let asked = request.headers().get(UPGRADE)?;
    let is_ours = asked == PROTOCOL && request.uri().path() == "/mount";
    is_ours.then(|| hyper::upgrade::on(request))
}

/// Hands the connection over once the reply is on its way.
pub fn take(
    admit: &Arc<Admit>,
    mounts: Option<&Mounts>,
    peer: Remote,
    (parts, caller): (&Parts, &Caller),
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
    let (admit, headers, caller) = (Arc::clone(admit), parts.headers.clone(), caller.clone());
    tokio::spawn(async move {
        let Some(upgrade) = upgrade else { return };
        let stream = match upgrade.await {
            Ok(upgraded) => Box::new(TokioIo::new(upgraded)),
            Err(error) => return tracing::debug!(%error, "a mount did not connect"),
        };
        let (address, revoked) = (peer.address, Arc::new(AtomicBool::new(false)));
        let watched = Arc::downgrade(&revoked);
        mounts.0(Mounted { caller, address, stream, revoked });
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
    // As whom the mount decides what it may answer from memory.
    reply.headers_mut().insert(CAIRN_USER, HeaderValue::from(user.0));
    Ok(reply)
}

/// Returns when the credentials in `headers` are those of `user` no longer: for a mount that comes
/// in by no door, since it is a gateway on its own. While that cannot be found out no master
/// answers, and the mount shows nothing for longer than a lease.
pub async fn until_revoked(admit: &Admit, headers: &HeaderMap, user: UserId) {
    while !matches!(admit.holds(headers, user).await, Ok(false)) {
        sleep(LOOK).await;
    }
}

/// The state of a mount's credentials.
#[derive(Default)]
struct Standing {
    /// Since when nothing is.
    unknown: Option<Instant>,
}

impl Standing {
    /// Whether the mount goes on after a look. If it cannot be decided for long, the answer is no.
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
