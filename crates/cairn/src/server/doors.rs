//! The doors of a server: sockets, TLS, and what answers on them.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::HandleKey;
use cairn_base::rng::RealRng;
use cairn_doors::admit::Admit;
use cairn_doors::http::{HttpDoor, Mounts, Redirects};
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::s3::{self, Classes, PublicAcl, S3Config};
use cairn_doors::serve::{self, Serving};
use cairn_doors::tls::Tls;
use cairn_fs::Fs;
use parking_lot::Mutex;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::{Failure, Result};
use crate::output;
use crate::server::{nfs, otlp, process};

/// Where the doors are, and how they are protected.
#[derive(clap::Args)]
pub struct DoorArgs {
    /// Where the S3 door listens; port 0 for any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    s3: SocketAddr,
    /// Where the HTTP door listens, with health, metrics and administration
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Certificate chain for both doors, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A domain under which buckets are host names (bucket.DOMAIN); may be given several times
    #[arg(long, value_name = "DOMAIN")]
    domain: Vec<String>,
    #[command(flatten)]
    nfs: nfs::NfsArgs,
    /// What becomes of S3 storage classes other than STANDARD that clients ask for: refused, or
    /// taken and kept as STANDARD
    #[arg(long, value_name = "refuse|standard", value_parser = storage_classes)]
    #[arg(default_value = "refuse")]
    s3_storage_classes: Classes,
    /// What becomes of the bucket ACL public-read, which lets anybody list a bucket at S3, and read
    /// all its objects here: refused, or accepted
    #[arg(long, value_name = "refuse|accept", value_parser = public_acl)]
    #[arg(default_value = "refuse")]
    s3_public_acl: PublicAcl,
    /// Requests that take longer are logged with where their time went, milliseconds
    #[arg(long, value_name = "MS", default_value_t = SLOW.as_millis() as u64)]
    slow_ms: u64,
    /// Send traces of requests to this collector of OpenTelemetry, by OTLP over HTTP: requests
    /// that come as sampled, and so many of the others as --otlp-ratio says
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// The share of requests without a trace of their own that --otlp gets, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, requires = "otlp")]
    otlp_ratio: f64,
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

/// The sockets of a server, bound before anything else is done.
pub struct Sockets {
    s3: SocketAddr,
    http: SocketAddr,
    scheme: &'static str,
    domains: Vec<String>,
    classes: Classes,
    public_acl: PublicAcl,
    observer: Mutex<Option<Observer>>,
    /// Taken when the doors open. Until then nobody is let wait: connections are refused.
    sockets: Mutex<Option<[TcpSocket; 2]>>,
    /// Likewise, if there is such a door, and where.
    nfs: Mutex<Option<nfs::Bound>>,
    nfs_address: Option<SocketAddr>,
}

/// Doors that are open.
pub struct Served(JoinSet<()>);

impl Served {
    /// Waits until all connections have ended, or were given up.
    pub async fn join(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

impl DoorArgs {
    pub fn load_tls(&self) -> Result<Option<Arc<Tls>>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                for file in [certificate, key] {
                    File::open(file).map_err(|error| Failure::file(file, &error))?;
                }
                let what = format!("TLS with {} and {}", certificate.display(), key.display());
                let loaded = Tls::load(certificate, key);
                Ok(Some(loaded.map_err(|error| Failure::from(error).of(what))?))
            }
            _ => Ok(None),
        }
    }

    fn observer(&self) -> Result<Observer> {
        let slow = Duration::from_millis(self.slow_ms);
        match &self.otlp {
            None => Ok(Observer::new(&RealRng, slow)),
            Some(url) => {
                let export = otlp::export(url)?;
                Ok(Observer::exporting(&RealRng, slow, self.otlp_ratio, export))
            }
        }
    }

    /// Binds all addresses. Must be called within a runtime.
    pub fn listen(&self, has_tls: bool) -> Result<Sockets> {
        let bind = |door: &str, address: SocketAddr| {
            let socket = serve::bind(address)
                .map_err(|error| Failure::new(format!("{door} door on {address}: {error}")))?;
            let bound = socket.local_addr()?;
            if !has_tls && !bound.ip().is_loopback() {
                tracing::warn!(
                    address = %bound,
                    "the {door} door is reachable from other machines WITHOUT TLS: who listens on the \
                     way reads all that is sent; use --tls-cert and --tls-key, or a proxy with TLS"
                );
            }
            Ok::<_, Failure>((socket, bound))
        };
        let ((s3, s3_bound), (http, http_bound)) = (bind("S3", self.s3)?, bind("HTTP", self.http)?);
        let nfs = self.nfs.listen()?;
        Ok(Sockets {
            s3: s3_bound,
            http: http_bound,
            scheme: if has_tls { "https" } else { "http" },
            domains: self.domain.clone(),
            classes: self.s3_storage_classes,
            public_acl: self.s3_public_acl,
            observer: Mutex::new(Some(self.observer()?)),
            sockets: Mutex::new(Some([s3, http])),
            nfs_address: nfs.as_ref().map(|bound| bound.address),
            nfs: Mutex::new(nfs),
        })
    }
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
        output::line(format!("http {}", self.http_url()))?;
        self.nfs_address.map_or(Ok(()), |address| output::line(format!("nfs {address}")))
    }
}

/// What doors offer where they can.
#[derive(Default)]
pub struct Offers {
    /// For the handles of files that the NFS door gives.
    pub handles: Option<HandleKey>,
    pub redirects: Option<Redirects>,
    pub mounts: Option<Mounts>,
}

/// They share the files that may be open.
const DOORS: u64 = 2;

/// Opens the doors.
pub fn start(
    (fs, admit): (&Fs, &Arc<Admit>),
    offers: Offers,
    sockets: &Sockets,
    tls: Option<Arc<Tls>>,
    stopped: &watch::Receiver<bool>,
) -> Result<Served> {
    let taken = sockets.sockets.lock().take().zip(sockets.observer.lock().take());
    let (bound, observer) = taken.ok_or_else(|| Failure::new("the doors are open already"))?;
    let [s3, http] = bound.map(serve::begin);
    let (s3, http) = (s3?, http?);
    let connections = Arc::new(Connections::default());
    let metrics = Metrics::new(fs.clone(), Arc::clone(&connections), observer);
    let nfs = sockets.nfs.lock().take();
    let most = process::connections_of(DOORS + u64::from(nfs.is_some()));
    let limits = Limits { connections: most, ..Limits::default() };
    let serving = Serving { tls: tls.clone(), limits, connections };
    let (domains, classes) = (sockets.domains.clone(), sockets.classes);
    let public_acl = sockets.public_acl;
    let config = S3Config { domains, classes, public_acl, ..S3Config::default() };
    let s3_door = s3::service(fs.clone(), Arc::clone(admit), &metrics, config);
    let counted = Arc::clone(&metrics);
    let mut http_door = HttpDoor::new(Arc::clone(admit), metrics, offers.redirects);
    if let Some(mounts) = offers.mounts {
        http_door = http_door.with_mounts(mounts);
    }
    let mut served = JoinSet::new();
    served.spawn(serve::serve(s3, s3_door, serving.clone(), stopped.clone()));
    served.spawn(serve::serve(http, http_door, serving, stopped.clone()));
    if let Some(bound) = nfs {
        let missing = || Failure::new("the NFS door has no key for handles");
        let key = offers.handles.ok_or_else(missing)?;
        served.spawn(bound.serve(fs, key, most, (&counted, stopped))?);
    }
    if let Some(tls) = tls {
        // Never ends by itself.
        tokio::spawn(tls.watch());
    }
    Ok(Served(served))
}
