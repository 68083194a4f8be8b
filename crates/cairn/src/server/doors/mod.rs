//! The doors of a server or gateway: sockets, TLS, and what answers on them.

pub mod http;
pub mod nfs;
pub mod s3;

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::HandleKey;
use cairn_base::rng::RealRng;
use cairn_doors::admit::Admit;
use cairn_doors::http::{Mounts, Redirects};
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::s3::{Classes, PublicAcl};
use cairn_doors::serve::{self, Serving};
use cairn_doors::tls::Tls;
use cairn_fs::Fs;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::{Failure, Result};
use crate::output;
use crate::server::{otlp, process};

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

/// A protocol through which users reach the store.
pub struct Door {
    /// In metrics, traces and the log of slow requests, and before its address on stdout.
    pub name: &'static str,
    /// Takes its address, if there is to be such a door. Called within a runtime.
    bind: fn(&DoorArgs) -> Result<Option<Bound>>,
}

/// All doors, in the order in which they are bound, opened and announced. A further door is an
/// entry here, and a file beside this one; its options are in [`DoorArgs`].
pub const DOORS: [Door; 3] = [s3::DOOR, http::DOOR, nfs::DOOR];

/// A door with an address. Until it is served nobody is let wait: connections are refused.
struct Bound {
    socket: TcpSocket,
    /// The address, as clients are told it.
    shown: String,
    serve: Serve,
}

/// Serves a door until it is told to stop, and then drains it: the future ends when all its
/// connections have ended, or were given up.
type Serve = Box<dyn FnOnce(TcpListener, &mut Behind<'_>) -> Result<Served> + Send>;
type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What all doors have behind them.
struct Behind<'a> {
    fs: &'a Fs,
    admit: &'a Arc<Admit>,
    offers: Offers,
    metrics: Arc<Metrics>,
    serving: Serving,
    stopped: &'a watch::Receiver<bool>,
}

/// The sockets of a server, bound before anything else is done.
pub struct Sockets {
    /// The names of doors, and their addresses.
    shown: Vec<(&'static str, String)>,
    observer: Mutex<Option<Observer>>,
    /// Taken when the doors open.
    bound: Mutex<Option<Vec<Bound>>>,
}

/// Doors that are open.
pub struct Open(JoinSet<()>);

impl Open {
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

    fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }

    /// Binds the address of a door that speaks HTTP; `title` is for people.
    fn bind_http(&self, title: &str, address: SocketAddr, serve: Serve) -> Result<Bound> {
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

    /// Binds all addresses. Must be called within a runtime.
    pub fn listen(&self) -> Result<Sockets> {
        let (mut shown, mut all) = (Vec::new(), Vec::new());
        for door in DOORS {
            if let Some(bound) = (door.bind)(self)? {
                shown.push((door.name, bound.shown.clone()));
                all.push(bound);
            }
        }
        let observer = Mutex::new(Some(self.observer()?));
        Ok(Sockets { shown, observer, bound: Mutex::new(Some(all)) })
    }
}

impl Sockets {
    /// The address of a door, as clients are told it; empty if there is no such door.
    pub fn shown(&self, door: &Door) -> &str {
        let found = self.shown.iter().find(|(name, _)| *name == door.name);
        found.map_or("", |(_, shown)| shown)
    }

    /// Says on stdout where the doors are: from here on they answer.
    pub fn announce(&self) -> Result<()> {
        self.shown.iter().try_for_each(|(name, shown)| output::line(format!("{name} {shown}")))
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

/// Opens the doors.
pub fn start(
    (fs, admit): (&Fs, &Arc<Admit>),
    offers: Offers,
    sockets: &Sockets,
    tls: Option<Arc<Tls>>,
    stopped: &watch::Receiver<bool>,
) -> Result<Open> {
    let taken = sockets.bound.lock().take().zip(sockets.observer.lock().take());
    let (bound, observer) = taken.ok_or_else(|| Failure::new("the doors are open already"))?;
    let connections = Arc::new(Connections::default());
    let metrics = Metrics::new(fs.clone(), Arc::clone(&connections), observer);
    // They share the files that may be open.
    let most = process::connections_of(bound.len() as u64);
    let limits = Limits { connections: most, ..Limits::default() };
    let serving = Serving { tls: tls.clone(), limits, connections };
    let mut behind = Behind { fs, admit, offers, metrics, serving, stopped };
    let mut open = JoinSet::new();
    for Bound { socket, serve, .. } in bound {
        open.spawn(serve(serve::begin(socket)?, &mut behind)?);
    }
    if let Some(tls) = tls {
        // Never ends by itself.
        tokio::spawn(tls.watch());
    }
    Ok(Open(open))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        doors: DoorArgs,
    }

    #[tokio::test]
    async fn doors_that_are_asked_for_are_bound_in_their_order() {
        let s3_and_http = ["cairn", "--s3=127.0.0.1:0", "--http=127.0.0.1:0"];
        for (more, names) in
            [(&[][..], &["s3", "http"][..]), (&["--nfs=127.0.0.1:0"], &["s3", "http", "nfs"])]
        {
            let args = Command::parse_from([&s3_and_http[..], more].concat()).doors;
            let sockets = args.listen().unwrap();
            let shown: Vec<&str> = sockets.shown.iter().map(|(name, _)| *name).collect();
            assert_eq!(shown, names);
            assert!(sockets.shown(&s3::DOOR).starts_with("http://127.0.0.1:"));
            assert_eq!(sockets.shown(&nfs::DOOR).is_empty(), more.is_empty());
        }
    }
}
