//! What a door is: its options, how it is bound, and what it has behind it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use cairn_auth::HandleKey;
use cairn_doors::admit::Admit;
use cairn_doors::http::{Mounts, Redirects};
use cairn_doors::metrics::Metrics;
use cairn_doors::observe::SLOW;
use cairn_doors::s3::{Classes, PublicAcl};
use cairn_doors::serve::{self, Serving};
use cairn_fs::Fs;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::nfs_args::NfsArgs;
use super::syslog_args::SyslogArgs;
use crate::failure::{Failure, Result};

/// Where the doors are, and how they are protected.
#[derive(clap::Args)]
pub struct DoorArgs {
    /// Where the S3 door listens; port 0 for any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    pub(super) s3: SocketAddr,
    /// Where the HTTP door listens, with health, metrics and administration
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(super) http: SocketAddr,
    /// Certificate chain for both doors, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// A domain under which buckets are host names (bucket.DOMAIN); may be given several times
    #[arg(long, value_name = "DOMAIN")]
    pub(super) domain: Vec<String>,
    #[command(flatten)]
    pub(super) nfs: NfsArgs,
    #[command(flatten)]
    pub(super) syslog: SyslogArgs,
    /// What becomes of S3 storage classes other than STANDARD that clients ask for: refused, or
    /// taken and kept as STANDARD
    #[arg(long, value_name = "refuse|standard", value_parser = storage_classes)]
    #[arg(default_value = "refuse")]
    pub(super) s3_storage_classes: Classes,
    /// What becomes of the bucket ACL public-read, which lets anybody list a bucket at S3, and read
    /// all its objects here: refused, or accepted
    #[arg(long, value_name = "refuse|accept", value_parser = public_acl)]
    #[arg(default_value = "refuse")]
    pub(super) s3_public_acl: PublicAcl,
    /// Requests that take longer are logged with where their time went, milliseconds
    #[arg(long, value_name = "MS", default_value_t = SLOW.as_millis() as u64)]
    pub(super) slow_ms: u64,
    /// Send traces of requests to this collector of OpenTelemetry, by OTLP over HTTP: requests
    /// that come as sampled, and so many of the others as --otlp-ratio says
    #[arg(long, value_name = "URL")]
    pub(super) otlp: Option<String>,
    /// The share of requests without a trace of their own that --otlp gets, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, requires = "otlp")]
    pub(super) otlp_ratio: f64,
}

fn storage_classes(text: &str) -> Result<Classes, &'static str> {
    match text {
        "refuse" => Ok(Classes::Refuse),
        "standard" => Ok(Classes::Standard),
        _ => Err("use refuse or standard"),
    }
}

fn public_acl(text: &str) -> Result<PublicAcl, &'static str> {
    match text {
        "refuse" => Ok(PublicAcl::Refuse),
        "accept" => Ok(PublicAcl::Accept),
        _ => Err("use refuse or accept"),
    }
}

/// A protocol through which users reach the store.
pub struct Door {
    /// In metrics, traces and the log of slow requests, and before its address on stdout.
    pub name: &'static str,
    /// Takes its address, if there is to be such a door. Called within a runtime.
    pub(super) bind: fn(&DoorArgs) -> Result<Option<Bound>>,
}

/// A door with an address. Until it is served nobody is let wait: connections are refused.
pub(super) struct Bound {
    pub(super) socket: TcpSocket,
    /// The address, as clients are told it.
    pub(super) shown: String,
    pub(super) serve: Serve,
}

/// Serves a door until it is told to stop, and then drains it: the future ends when all its
/// connections have ended, or were given up.
pub(super) type Serve = Box<dyn FnOnce(TcpListener, &mut Behind<'_>) -> Result<Served> + Send>;
pub(super) type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What all doors have behind them.
pub(super) struct Behind<'a> {
    pub(super) fs: &'a Fs,
    pub(super) admit: &'a Arc<Admit>,
    pub(super) offers: Offers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) serving: Serving,
    pub(super) stopped: &'a watch::Receiver<bool>,
}

/// What doors offer where they can.
#[derive(Default)]
pub struct Offers {
    /// For the handles of files that the NFS door gives.
    pub handles: Option<HandleKey>,
    pub redirects: Option<Redirects>,
    pub mounts: Option<Mounts>,
}

impl DoorArgs {
    fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }

    /// Binds the address of a door that speaks HTTP; `title` is for people.
    pub(super) fn bind_http(
        &self,
        title: &str,
        address: SocketAddr,
        serve: Serve,
    ) -> Result<Bound> {
        let socket = serve::bind(address)
            .map_err(|error| Failure::new(format!("{title} door on {address}: {error}")))?;
        let bound = socket.local_addr()?;
        if self.tls_cert.is_none() && !bound.ip().is_loopback() {
            tracing::warn!(
                address = %bound,
                "the {title} door is reachable from other machines WITHOUT TLS: who listens on the \
                 way reads all that is sent; use --tls-cert and --tls-key, or a proxy with TLS"
            );
        }
        Ok(Bound { socket, shown: format!("{}://{bound}", self.scheme()), serve })
    }
}
