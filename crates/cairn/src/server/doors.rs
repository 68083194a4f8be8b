//! The doors of a server: sockets, TLS, and what answers on them.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_doors::http::HttpDoor;
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::s3::{self, S3Config};
use cairn_doors::serve::{self, Serving};
use cairn_doors::tls::Tls;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Args;
use super::open::Parts;
use crate::failure::{Failure, Result};
use crate::output;

/// The sockets of a server, bound before anything else is done.
pub struct Sockets {
    s3: SocketAddr,
    http: SocketAddr,
    scheme: &'static str,
    /// Taken when the doors open.
    listeners: Mutex<Option<[TcpListener; 2]>>,
}

/// Doors that are open.
pub struct Served(JoinSet<()>);

impl Served {
    /// Waits until all connections have ended, or were given up.
    pub async fn join(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

pub fn load_tls(args: &Args) -> Result<Option<Arc<Tls>>> {
    match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let what = format!("TLS with {} and {}", certificate.display(), key.display());
            let loaded = Tls::load(certificate, key);
            Ok(Some(loaded.map_err(|error| Failure::from(error).of(what))?))
        }
        _ => Ok(None),
    }
}

/// Binds both addresses. Must be called within a runtime.
pub fn listen(args: &Args, has_tls: bool) -> Result<Sockets> {
    let bind = |door: &str, address: SocketAddr| {
        let listener = serve::listen(address)
            .map_err(|error| Failure::new(format!("{door} door on {address}: {error}")))?;
        let bound = listener.local_addr()?;
        if !has_tls && !bound.ip().is_loopback() {
            tracing::warn!(
                address = %bound,
                "the {door} door is reachable from other machines WITHOUT TLS: who listens on the \
                 way reads all that is sent; use --tls-cert and --tls-key, or a proxy with TLS"
            );
        }
        Ok::<_, Failure>((listener, bound))
    };
    let ((s3, s3_bound), (http, http_bound)) = (bind("S3", args.s3)?, bind("HTTP", args.http)?);
    Ok(Sockets {
        s3: s3_bound,
        http: http_bound,
        scheme: if has_tls { "https" } else { "http" },
        listeners: Mutex::new(Some([s3, http])),
    })
}

impl Sockets {
    pub fn s3_url(&self) -> String {
        format!("{}://{}", self.scheme, self.s3)
    }

    pub fn http_url(&self) -> String {
        format!("{}://{}", self.scheme, self.http)
    }

    /// Says on stdout where the doors are: from here on they answer.
    pub fn announce(&self) -> Result<()> {
        output::line(format!("s3 {}", self.s3_url()))?;
        output::line(format!("http {}", self.http_url()))
    }
}

/// Opens the doors.
pub fn start(
    args: &Args,
    parts: &Parts,
    sockets: &Sockets,
    tls: Option<Arc<Tls>>,
    stopped: &watch::Receiver<bool>,
) -> Result<Served> {
    let taken = sockets.listeners.lock().take();
    let [s3, http] = taken.ok_or_else(|| Failure::new("the doors are open already"))?;
    let connections = Arc::new(Connections::default());
    let metrics = Metrics::new(parts.fs.clone(), Arc::clone(&connections));
    let serving = Serving { tls: tls.clone(), limits: Limits::default(), connections };
    let http_door = HttpDoor::new(Arc::clone(&parts.admit), metrics);
    let config = S3Config { domains: args.domain.clone(), ..S3Config::default() };
    let s3_door = s3::service(parts.fs.clone(), Arc::clone(&parts.admit), config);
    let mut served = JoinSet::new();
    served.spawn(serve::serve(s3, s3_door, serving.clone(), stopped.clone()));
    served.spawn(serve::serve(http, http_door, serving, stopped.clone()));
    if let Some(tls) = tls {
        // Never ends by itself.
        tokio::spawn(tls.watch());
    }
    Ok(Served(served))
}
