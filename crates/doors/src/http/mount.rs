//! `GET /mount`: where a mount connects. It shows its credentials as any request does; the
//! connection is then its own, and what it asks over it is asked by that user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, Principal};
use cairn_base::{Error, Result, UserId};
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::Body;
use crate::admit::{Admit, Refused};
use crate::serve::Peer;
use crate::upload::Upload;

/// The protocol that is asked for, with its version.
const PROTOCOL: &str = "cairn-mount/2";
const CAIRN_USER: HeaderName = HeaderName::from_static("cairn-user");
/// How often there is a look whether the credentials still hold.
const LOOK: Duration = Duration::from_secs(5);

/// A connection whose other end is a mount.
pub trait MountStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> MountStream for T {}

/// A mount that has connected.
pub struct Mounted {
    /// Who it showed the credentials of.
    pub user: UserId,
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

/// What becomes of the connection, if the request asks for this protocol.
pub fn wanted(request: &mut Request<Upload>) -> Option<OnUpgrade> {
    let asked = request.headers().get(UPGRADE)?;
    let is_ours = asked == PROTOCOL && request.uri().path() == "/mount";
    is_ours.then(|| hyper::upgrade::on(request))
}

/// Hands the connection over once the reply is on its way.
pub fn take(
    admit: &Arc<Admit>,
    mounts: Option<&Mounts>,
    peer: Peer,
    (parts, caller): (&Parts, &Caller),
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>> {
    let Some(mounts) = mounts.cloned() else {
        return Err(Error::NotImplemented("mounts at this door".into()));
    };
    let Principal::User(user) = caller.principal() else {
        return Err(Error::Denied("mount without credentials".into()));
    };
    let (admit, headers) = (Arc::clone(admit), parts.headers.clone());
    tokio::spawn(async move {
        let Some(upgrade) = upgrade else { return };
        let stream = match upgrade.await {
            Ok(upgraded) => Box::new(TokioIo::new(upgraded)),
            Err(error) => return tracing::debug!(%error, "a mount did not connect"),
        };
        let (address, revoked) = (peer.address, Arc::new(AtomicBool::new(false)));
        let watched = Arc::downgrade(&revoked);
        mounts.0(Mounted { user, address, stream, revoked });
        while let Some(revoked) = watched.upgrade() {
            if !holds(&admit, &headers, address).await {
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

async fn holds(admit: &Admit, headers: &HeaderMap, address: SocketAddr) -> bool {
    !matches!(admit.caller(headers, address).await, Err(Refused::Credentials))
}
