//! Door of a chunkserver for clients that a gateway sent there.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::LinkKey;
use cairn_base::rng::RealRng;
use cairn_base::{BlockId, Clock, Error, GroupId, Result as StoreResult, Secret};
use cairn_blocks::Blocks;
use cairn_cluster::control::Agent;
use cairn_cluster::data::{Chunkserver, ReplicatedBlocks, held};
use cairn_doors::http::FilesDoor;
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::serve::{self, Serving};
use cairn_doors::tls::Tls;
use cairn_fs::BlockReader;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::status::{ProcessFacts, shifted};
use crate::failure::{Failure, Result};
use crate::server::process;

/// Name of this door in metrics, traces and the log of slow requests.
const NAME: &str = "files";
/// Time for downloads in progress when the chunkserver stops.
const DRAIN: Duration = Duration::from_secs(10);
/// Memory for data on the way to clients, KiB.
const MEMORY_KIB: usize = 128 << 10;

#[derive(clap::Args)]
pub struct FilesArgs {
    /// Address of the door where redirected clients fetch objects. It also serves metrics to this
    /// machine. Without this, gateways redirect no clients here
    #[arg(long, value_name = "ADDR")]
    #[arg(value_parser = crate::listen_address::parse)]
    http: Option<SocketAddr>,
    /// URL at which clients reach that door, if it differs from --http
    #[arg(long, value_name = "URL", requires = "http", value_parser = url)]
    url: Option<String>,
    /// Certificate chain for clients, PEM
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_key"])]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires_all = ["http", "tls_cert"])]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
}

/// A bound door that is not yet open.
pub struct Files {
    listener: TcpListener,
    url: String,
    pub tls: Option<Arc<Tls>>,
    /// URL of the door, set when it is open.
    shown: Arc<OnceLock<String>>,
}

impl FilesArgs {
    /// Moves the port by `further` from the given one.
    pub fn shift(&mut self, further: u16) -> Result<()> {
        if further > 0 && self.url.is_some() {
            let text = "--url is for a machine with one disk: each disk has a door of its own";
            return Err(Failure::usage(text));
        }
        self.http.as_mut().map_or(Ok(()), |address| shifted("--http", address, further))
    }

    /// Binds the door. Must be called within a runtime.
    pub fn bind(&self) -> Result<Option<Files>> {
        let Some(address) = self.http else { return Ok(None) };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let what = format!("TLS with {} and {}", certificate.display(), key.display());
                let loaded = Tls::load(certificate, key);
                Some(loaded.map_err(|error| Failure::from(error).of(what))?)
            }
            _ => None,
        };
        let listener = serve::listen(address)
            .map_err(|error| Failure::address("HTTP door", "--http", address, &error))?;
        let local = listener.local_addr()?;
        let url = match &self.url {
            Some(url) => url.clone(),
            None if local.ip().is_unspecified() => {
                return Err(Failure::usage(format!(
                    "--http {address} is every address of this machine: say by --url URL under \
                     which one clients reach it"
                )));
            }
            None => format!("{}://{local}", if tls.is_some() { "https" } else { "http" }),
        };
        if tls.is_none() && !local.ip().is_loopback() {
            tracing::warn!(
                address = %local,
                "clients fetch objects WITHOUT TLS here: anyone on the way can read them"
            );
        }
        Ok(Some(Files { listener, url, tls, shown: Arc::default() }))
    }
}

impl Files {
    /// Returns the URL, once the door is open.
    pub fn shown(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.shown)
    }

    /// Serves until it is to stop, from the time when a master has given the key of links.
    pub async fn serve(
        self,
        agent: Arc<Agent>,
        clock: Arc<dyn Clock>,
        blocks: Near,
        told: ProcessFacts,
        mut stopped: watch::Receiver<bool>,
    ) {
        let key = tokio::select! {
            key = link_key(&agent) => key,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        let Some(key) = key else {
            tracing::error!("the master gives this node no key of links: no client is served");
            return;
        };
        let connections = Arc::new(Connections::default());
        let observer = Observer::new(&RealRng, SLOW);
        let metrics = Metrics::of_links(Arc::clone(&connections), observer);
        told.numbers.into_iter().for_each(|numbers| metrics.count_more(numbers));
        let (blocks, ready, counts) = (Arc::new(blocks), told.readiness, metrics.door(NAME));
        let door = FilesDoor::new(key, blocks, clock, &RealRng, ready, counts);
        if let Some(tls) = &self.tls {
            // It never ends on its own.
            tokio::spawn(Arc::clone(tls).watch());
        }
        // The other connections are those of nodes.
        let most = process::connections_of(2);
        let limits = Limits { connections: most, drain: DRAIN, ..Limits::default() };
        let serving = Serving { tls: self.tls.clone(), limits, connections, ..Serving::default() };
        tracing::info!(url = self.url, "serving clients");
        // No other task sets it.
        let _ = self.shown.set(self.url);
        serve::serve(self.listener, door, serving, stopped).await;
    }
}

/// Asks for the key until a master answers; `None` if it has none.
async fn link_key(agent: &Agent) -> Option<LinkKey> {
    match cairn_roles::secrets(agent).await {
        Ok(secrets) => secrets.links.map(|key| LinkKey::new(&Secret::new(key))),
        Err(error) => {
            tracing::error!(%error, "asking for the key of links");
            None
        }
    }
}

/// Blocks of this node, and of others if this node lacks a block.
pub struct Near {
    own: Arc<Chunkserver>,
    others: ReplicatedBlocks,
    /// Memory for data on the way to clients, KiB. It is separate from that for other nodes: slow
    /// clients must not keep these waiting.
    memory: Arc<Semaphore>,
}

impl Near {
    pub fn new(own: Arc<Chunkserver>, others: ReplicatedBlocks) -> Near {
        Near { own, others, memory: Arc::new(Semaphore::new(MEMORY_KIB)) }
    }
}

#[async_trait]
impl BlockReader for Near {
    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> StoreResult<Bytes> {
        let kib = range.len().div_ceil(1024).min(MEMORY_KIB) as u32;
        let room = Arc::clone(&self.memory).acquire_many_owned(kib).await;
        let room = room.map_err(|_| Error::Unavailable("stopped".into()))?;
        let bytes = match self.own.read(group, block, range.clone()).await {
            Err(
                Error::NotFound(_) | Error::Corrupt { .. } | Error::Io(_) | Error::Unavailable(_),
            ) => self.others.get(group, block, range).await?,
            done => done?,
        };
        Ok(held(bytes, room))
    }
}

/// Checks a URL that will precede `/files/`.
fn url(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&byte);
    let fits = rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.bytes().all(is_plain)
    });
    if fits && url.len() <= 255 {
        return Ok(url.trim_end_matches('/').into());
    }
    Err(format!(
        "{url:?} is not a URL of scheme and host: use http://HOST, https://HOST:PORT or the like"
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_doors() {
        for good in ["http://a", "https://a.example:8443", "http://[::1]:80", "https://a/b"] {
            assert_eq!(super::url(good).unwrap(), good);
        }
        assert_eq!(super::url("http://a/").unwrap(), "http://a");
        let long = format!("http://{}", "a".repeat(255));
        for bad in ["a:80", "ftp://a", "http://", "http:///x", "http://a b", "http://a?x", &long] {
            assert!(super::url(bad).is_err(), "{bad}");
        }
    }
}
