//! A door: its options, how it is bound, and the parts behind it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use cairn_audit::LineQueue;
use cairn_auth::{HandleKey, Network};
use cairn_console::Insight;
use cairn_doors::Records;
use cairn_doors::admit::Admit;
use cairn_doors::http::{Mounts, Redirects};
use cairn_doors::metrics::{Metrics, MoreNumbers};
use cairn_doors::observe::SLOW;
use cairn_doors::s3::{Classes, PublicAcl};
use cairn_doors::serve::{self, Serving};
use cairn_fs::Fs;
use cairn_logs::LogPaths;
use hyper::Uri;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::console_args::ConsoleArgs;
use super::nfs_args::NfsArgs;
use super::redirect_args::RedirectArgs;
use super::syslog_args::SyslogArgs;
use super::website_args::WebsiteArgs;
use crate::failure::{Failure, Result};
use crate::inflight::Role;

use crate::server::acme::AcmeArgs;
use crate::server::records::RecordArgs;

/// Where the doors are, and how they are protected.
#[derive(clap::Args)]
pub struct DoorArgs {
    /// Address of the S3 door; port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) s3: SocketAddr,
    /// Address of the HTTP door, which also has health, metrics and administration
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) http: SocketAddr,
    /// Address of a door with /healthz and /readyz alone, without TLS, such as 127.0.0.1:8081. It
    /// answers whatever clients do at the other doors. Without this there is none
    #[arg(long, value_name = "ADDR")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) health: Option<SocketAddr>,
    /// A network of proxies, such as 10.0.0.7 or 10.0.0.0/24, that say for which client they ask,
    /// by the PROXY protocol version 2 or by X-Forwarded-For; may be given several times. The S3,
    /// HTTP and website doors and the console believe it of nobody else
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(super) trusted_proxy: Vec<Network>,
    /// Certificate chain for these doors, the console, and --syslog-tls, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", group = "certificate")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(super) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(super) tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub(super) acme: AcmeArgs,
    #[command(flatten)]
    pub(super) redirect: RedirectArgs,
    /// Domain under which buckets are host names (bucket.DOMAIN); may be given several times
    #[arg(long, value_name = "DOMAIN")]
    pub(super) domain: Vec<String>,
    #[command(flatten)]
    pub console: ConsoleArgs,
    #[command(flatten)]
    pub(super) nfs: NfsArgs,
    #[command(flatten)]
    pub(super) syslog: SyslogArgs,
    /// Where records of logs go: logs-NAME/SOURCE/{day}.jsonl, with {user} in the first part,
    /// {source} and {protocol} in the second. With USER= before it, those of one user; may be given
    /// several times
    #[arg(long, value_name = "[USER=]TEMPLATE", value_parser = log_path)]
    pub(super) log_path: Vec<String>,
    #[command(flatten)]
    pub(super) website: WebsiteArgs,
    #[command(flatten)]
    pub records: RecordArgs,
    /// Refuse S3 storage classes other than STANDARD, or accept them and store as STANDARD
    #[arg(long, value_name = "refuse|standard", value_parser = storage_classes)]
    #[arg(default_value = "refuse")]
    pub(super) s3_storage_classes: Classes,
    /// Refuse or accept the bucket ACL public-read. At S3 it lets anybody list the bucket; here it
    /// also lets anybody read all its objects
    #[arg(long, value_name = "refuse|accept", value_parser = public_acl)]
    #[arg(default_value = "refuse")]
    pub(super) s3_public_acl: PublicAcl,
    /// Log requests that take longer than this, with their stages, milliseconds
    #[arg(long, value_name = "MS", default_value_t = SLOW.as_millis() as u64)]
    pub(super) slow_ms: u64,
    /// Send traces of requests to this OpenTelemetry collector, by OTLP over HTTP: of requests that
    /// arrive as sampled, and of a share of the others (--otlp-ratio)
    #[arg(long, value_name = "URL")]
    pub(super) otlp: Option<String>,
    /// Share of requests without a trace of their own that --otlp sends, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, requires = "otlp")]
    pub(super) otlp_ratio: f64,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}

fn log_path(text: &str) -> Result<String, String> {
    let parsed = LogPaths::parse([text]).map(|_| text.to_owned());
    parsed.map_err(|error| error.to_string())
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
    /// Name in metrics, traces and the log of slow requests, and before its address on stdout.
    pub name: &'static str,
    /// Binds its address, if there is to be such a door. Called within a runtime.
    pub(super) bind: fn(&DoorArgs, Role) -> Result<Option<Bound>>,
}

/// A door with an address. Until it is served, connections are refused, so that no client waits.
pub(super) struct Bound {
    pub(super) socket: TcpSocket,
    /// The address in the form for clients.
    pub(super) shown: String,
    /// Origins of pages that are served here, which the S3 door lets read its replies.
    pub(super) pages: Vec<String>,
    /// Set if the process goes on without it when its address is taken.
    pub(super) is_optional: bool,
    pub(super) serve: Serve,
}

/// Logs that there is no such door, because another process has its address.
pub(super) fn say_taken(door: &str, address: &str) {
    tracing::warn!("there is no {door}: {address} is taken; say with --{door} where it is to be");
}

/// Serves a door until it stops, and then drains it: the future ends when all its connections have
/// ended, or were given up.
pub(super) type Serve = Box<dyn FnOnce(TcpListener, &mut Behind<'_>) -> Result<DoorTask> + Send>;
pub(super) type DoorTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Parts that all doors share.
pub(super) struct Behind<'a> {
    pub(super) fs: &'a Fs,
    pub(super) admit: &'a Arc<Admit>,
    pub(super) offers: Offers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) serving: Serving,
    pub(super) stopped: &'a watch::Receiver<bool>,
    /// Origins of the pages of all doors.
    pub(super) pages: Vec<String>,
    /// Names of doors, and their addresses.
    pub(super) shown: &'a [(&'static str, String)],
}

/// Functions that doors offer if they can.
#[derive(Default)]
pub struct Offers {
    /// Key for the file handles of the NFS door.
    pub handles: Option<HandleKey>,
    pub redirects: Option<Redirects>,
    pub mounts: Option<Mounts>,
    /// Records of requests, and the lines that metrics count.
    pub records: Records,
    pub lines: Vec<Arc<LineQueue>>,
    /// Further metrics.
    pub numbers: Vec<MoreNumbers>,
    /// Facts about this process that the console shows.
    pub insight: Insight,
}

impl Behind<'_> {
    /// Returns the address of a door of this name in the form for clients; empty if there is no
    /// such door.
    pub(super) fn shown(&self, door: &str) -> &str {
        let found = self.shown.iter().find(|(name, _)| *name == door);
        found.map_or("", |(_, shown)| shown)
    }

    /// Returns the settings by which a door of this name is served.
    pub(super) fn serving(&self, door: &'static str) -> Serving {
        Serving { records: self.offers.records.of(door), ..self.serving.clone() }
    }
}

impl DoorArgs {
    /// Returns the paths of logs.
    ///
    /// # Errors
    /// If two of them are the same.
    pub(super) fn log_paths(&self) -> Result<Arc<LogPaths>> {
        let paths = LogPaths::parse(self.log_path.iter().map(String::as_str));
        Ok(Arc::new(paths.map_err(|error| Failure::usage(format!("--log-path: {error}")))?))
    }

    /// Returns the hosts by which the store is reached, where no user may have pages, and the
    /// buckets of this process's records.
    pub(super) fn reserved_names(&self) -> Vec<String> {
        let console = &self.console;
        let one = [&console.console_s3_url, &console.console_http_url, &self.redirect.redirect_to];
        let urls = console.console_url.iter().chain(one.into_iter().flatten());
        let host = |url: &String| Some(url.parse::<Uri>().ok()?.host()?.to_lowercase());
        let domains = self.domain.iter().chain(&self.website.website_domain);
        let buckets = self.records.buckets().map(str::to_owned);
        let fixed = std::iter::once("localhost".to_owned());
        let named = domains.map(|domain| domain.to_lowercase());
        fixed.chain(urls.filter_map(host)).chain(named).chain(buckets).collect()
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.has_tls() { "https" } else { "http" }
    }

    pub(super) fn has_tls(&self) -> bool {
        self.certificate().is_some()
    }

    /// Returns the files of the certificate chain and of its private key.
    pub(super) fn certificate(&self) -> Option<(PathBuf, PathBuf)> {
        let both = self.acme.certificate().map(|both| (both.clone(), both));
        both.or_else(|| self.tls_cert.clone().zip(self.tls_key.clone()))
    }

    /// Binds the address of a door that speaks HTTP; `title` is for people.
    pub(super) fn bind_http(
        &self,
        title: &str,
        address: SocketAddr,
        serve: Serve,
    ) -> Result<Bound> {
        let socket = serve::bind(address).map_err(|error| {
            let option = format!("--{}", title.to_lowercase());
            Failure::address(&format!("{title} door"), &option, address, &error)
        })?;
        let bound = socket.local_addr()?;
        if !self.has_tls() && !bound.ip().is_loopback() {
            tracing::warn!(
                address = %bound,
                "the {title} door is reachable from other machines WITHOUT TLS: anyone on the way \
                 can read all that is sent; use --tls-cert and --tls-key, --acme, or a proxy with TLS"
            );
        }
        let shown = format!("{}://{bound}", self.scheme());
        Ok(Bound { socket, shown, pages: Vec::new(), is_optional: false, serve })
    }
}
