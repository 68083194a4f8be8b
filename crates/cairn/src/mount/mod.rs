//! `cairn mount`: the store as a file system of this machine.

mod background;
mod dial;
mod ending;
mod point;
pub mod stats;

pub mod session;

use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::{Action, Caller, Resource, authorize};
use cairn_base::{Role, waits};
use cairn_cluster::limits::NODE_REQUESTS;
use cairn_doors::admit::AdmitError;
use cairn_doors::http::until_revoked;
use cairn_doors::serve::Remote;
use cairn_fs::Fs;
use cairn_fuse::{FuseMount, Options};
use cairn_meta::Meta;
use cairn_meta::session::client;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::runtime::{Handle, Runtime};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::config::ConfigArgs;
use crate::connection::{Connection, ServerAccess};
use crate::dir::lock::Lock;
use crate::disk_cache::DiskCacheArgs;
use crate::failure::{Failure, Result};
use crate::inflight;
use crate::node::ThisNode;
use crate::node::gateway::{self, GatewayStore};
use crate::output;
use crate::server::{log, process, signals::Signals};

use session::StoreSession;

/// Time that the end of a mount may take once it is ordered.
const GOODBYE: Duration = Duration::from_secs(30);
/// Interval at which a mount checks that its mount point is there.
const LOOK: Duration = Duration::from_secs(5);
/// Threads for requests that wait.
const WORKERS: usize = 4;

/// Mount a store as a file system
///
/// SERVER is the URL of the HTTP door of a `cairn server`, or of a gateway of a cluster. With
/// several URLs, separated by commas, the mount uses another one when one is gone. The mount shows
/// the buckets that the user of the access key may see, each as a directory; that user's rights
/// hold, and mode bits of files besides. Unmount it with `umount MOUNTPOINT`.
///
/// With --node the mount is a gateway on its own, and trusted like one: DIR is what
/// `cairn cluster join` made with a token for a gateway.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Environment:
  CAIRN_KEY, CAIRN_SECRET, CAIRN_TOKEN   as for other commands: the user who mounts

Written data is kept here for some seconds, at most --dirty-mib: fsync and close write it back, and
other mounts and doors see it then. docs/mount.md says which promises hold when, and which features
are not there.

Examples:
  cairn mount http://127.0.0.1:8080 /mnt/cairn
  cairn mount https://cairn.example.org /mnt/cairn --read-only
  cairn mount https://g1.example.org:8080,https://g2.example.org:8080 /mnt/cairn
  cairn mount --node /srv/cairn-mount /mnt/cairn
  umount /mnt/cairn")]
pub struct MountArgs {
    /// URL of the server or of gateways (without it, that of --server), and the directory to mount
    /// on
    #[arg(value_names = ["SERVER", "MOUNTPOINT"], num_args = 1..=2, required = true)]
    places: Vec<String>,
    #[command(flatten)]
    connection: Connection,
    /// Mount a cluster as the gateway with this directory, instead of SERVER
    #[arg(long, value_name = "DIR")]
    node: Option<PathBuf>,
    /// Stay in the foreground, and log to stderr
    #[arg(long, short)]
    foreground: bool,
    /// Stay as the process that cleans up after another one
    #[arg(long, hide = true)]
    supervise: bool,
    /// Log file of a mount in the background [default: none]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Refuse all changes through this mount
    #[arg(long)]
    read_only: bool,
    /// Keep locks within this machine; the kernel then opens and closes files without asking
    #[arg(long, requires = "read_only")]
    local_locks: bool,
    /// Hide the mount from other users of this machine
    #[arg(long)]
    private: bool,
    /// Keep idle processors awake while a program makes one request after another; uses more power
    #[arg(long)]
    low_latency: bool,
    /// Mount over a directory that is not empty
    #[arg(long)]
    nonempty: bool,
    /// Memory for blocks that are read often, MiB
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..1 << 24))]
    cache_mib: u64,
    /// Memory for metadata that may be used without asking the server, MiB
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    meta_cache_mib: u64,
    /// Memory for dirty data, which is not written back yet, MiB
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u64).range(8..1 << 24))]
    dirty_mib: u64,
    /// Threads that take requests from the kernel; 0 for one for each processor, at least two
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    #[command(flatten)]
    disk_cache: DiskCacheArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

impl MountArgs {
    fn mount_point(&self) -> &Path {
        Path::new(self.places.last().map_or("", |place| place.as_str()))
    }

    fn server(&self) -> Option<String> {
        (self.places.len() == 2).then(|| self.places[0].clone())
    }

    fn options(&self, source: String) -> Options {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Options {
            source,
            read_only: self.read_only,
            local_locks: self.local_locks,
            // The kernel shows it to others only if root mounts it.
            private: self.private || !rustix::process::geteuid().is_root(),
            threads: if self.threads == 0 { processors.max(2) } else { self.threads },
            low_latency: self.low_latency,
            dirty_bytes: self.dirty_mib << 20,
        }
    }
}

pub fn run(args: &MountArgs) -> Result<ExitCode> {
    if args.node.is_some() && args.places.len() == 2 {
        return Err(Failure::usage(
            "SERVER and --node exclude each other: leave out SERVER, since the node knows \
                its cluster",
        ));
    }
    if args.low_latency && !rustix::process::geteuid().is_root() {
        return Err(Failure::usage(
            "--low-latency: only root may keep processors awake: run as root, or leave it out",
        ));
    }
    point::check(args.mount_point(), args.nonempty)?;
    match (args.foreground, args.supervise) {
        (true, _) => process::run(&args.log, run_mount(args)),
        (false, true) => background::supervise(args.mount_point(), args.log_file.as_deref()),
        (false, false) => background::start(),
    }
}

/// A reachable store, and the caller of its mount.
struct ReachedStore {
    fs: Fs,
    user: Caller,
    source: String,
    /// Ends when the credentials are no longer valid, if no door checks that.
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
    _locks: [Option<Lock>; 2],
}

async fn run_mount(args: &MountArgs) -> Result<ExitCode> {
    args.config.announce();
    let mut signals = Signals::new()?;
    let reached = tokio::select! {
        reached = reach(args) => reached?,
        () = signals.stop(None) => return Ok(ExitCode::SUCCESS),
    };
    let ReachedStore { fs, user, source, revoked, _locks } = reached;
    // Apart from the session, so that waiting requests never keep it from being renewed.
    let requests = Requests::start()?;
    let at =
        args.mount_point().canonicalize().map_err(|e| Failure::file(args.mount_point(), &e))?;
    let options = args.options(source.clone());
    let runtime =
        requests.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone());
    let mounted = cairn_fuse::mount(fs.clone(), user, runtime, &at, &options);
    let mounted = mounted.map_err(|error| not_mounted(&at, &error))?;
    let _inflight = inflight::Serving::start(inflight::Role::Mount, &at);
    output::line(format!("mounted {source} on {}", at.display()))?;
    tracing::info!(source, at = %at.display(), "mounted");
    let ended = serve(mounted, &at, &mut signals, revoked).await;
    ending::after(ending::LIMIT, ending::end_now);
    if let Meta::Remote(session) = fs.meta() {
        session.close().await;
    }
    drop(requests);
    tracing::info!("unmounted");
    ended.map(|()| ExitCode::SUCCESS)
}

/// Threads for requests that wait. A runtime must not be dropped within another one, as would
/// happen when the mount fails: this one is shut down in the background.
struct Requests(Option<Runtime>);

impl Requests {
    fn start() -> Result<Requests> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("cairn-requests")
            .enable_all()
            .build()?;
        Ok(Requests(Some(runtime)))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves the kernel until the file system is unmounted, this process gets a signal to end, or the
/// user no longer exists.
async fn serve(
    mounted: FuseMount,
    at: &Path,
    signals: &mut Signals,
    revoked: impl Future<Output = ()>,
) -> Result<()> {
    let (ended, mut has_ended) = tokio::sync::oneshot::channel();
    let (flush, closed) = (mounted.flusher(), mounted.closed());
    let disconnected = tell_of_copies(at, mounted.disconnected());
    std::thread::Builder::new().name("cairn-mount".into()).spawn(move || {
        let _ = ended.send(mounted.serve());
    })?;
    let served = tokio::select! {
        served = &mut has_ended => served,
        // Its threads have noticed it too, except busy ones.
        () = disconnected => match timeout(GOODBYE, &mut has_ended).await {
            Ok(served) => served,
            Err(_) => {
                tracing::warn!("requests do not end that the kernel has given up: they are left");
                return Ok(());
            }
        },
        () = revoked => {
            // That user may no longer write dirty data back.
            point::detach(at)?;
            return Err(Failure::new("the credentials of this mount have been revoked, so \
                the mount ends"));
        }
        () = signals.stop(None) => {
            tracing::info!("unmounting");
            tokio::select! {
                () = flush => {}
                () = signals.again() => {
                    tracing::warn!("told to end at once: what is not written back is LOST");
                }
            }
            point::detach(at)?;
            tokio::select! {
                biased;
                served = &mut has_ended => served,
                () = closed => return Ok(()),
                () = sleep(GOODBYE) => {
                    tracing::warn!("files are still open: their programs lose them");
                    return Ok(());
                }
                () = signals.again() => return Ok(()),
            }
        }
    };
    match served {
        Ok(served) => Ok(served?),
        Err(_) => {
            Err(Failure::new("the mount ended unexpectedly: see the log, and mount it again"))
        }
    }
}

/// Waits until the kernel has ended the mount. If the mount point is gone before that, logs it, and
/// how the mount ends.
async fn tell_of_copies(at: &Path, disconnected: impl Future<Output = ()>) {
    let device = point::device(at);
    let gone = async {
        while point::device(at) == device {
            sleep(LOOK).await;
        }
        // It usually ends at once.
        sleep(LOOK).await;
    };
    let mut disconnected = pin!(disconnected);
    tokio::select! {
        () = &mut disconnected => return,
        () = gone => {}
    }
    tracing::warn!(
        at = %at.display(),
        "unmounted, and still in use: data are written back, or another mount namespace (a \
            container, a service) has a copy of it. It ends with the last copy, or by SIGTERM"
    );
    disconnected.await;
}

async fn reach(args: &MountArgs) -> Result<ReachedStore> {
    match &args.node {
        None => reach_server(args).await,
        Some(dir) => reach_cluster(args, dir, args.connection.known()?).await,
    }
}

/// Returns the URL of the server, or those of several gateways, with the credentials for them.
fn servers(args: &MountArgs) -> Result<Vec<ServerAccess>> {
    let Some(named) = args.server() else { return Ok(vec![args.connection.known()?]) };
    let one = |url: &str| args.connection.clone().at(Some(url.to_owned())).known();
    named.split(',').map(one).collect()
}

async fn reach_server(args: &MountArgs) -> Result<ReachedStore> {
    let cache_bytes = (args.meta_cache_mib << 20) as usize;
    let config = client::Config {
        cache_bytes,
        patience: waits::SLOW_SERVER,
        hasty: true,
        ..client::Config::default()
    };
    let opened = StoreSession::open(servers(args)?, config).await?;
    let StoreSession { client, blocks, clock, user, source } = opened;
    let (blocks, lock) = block_in_place(|| args.disk_cache.before(Arc::new(blocks)))?;
    let config =
        cairn_fs::Config { cache_bytes: args.cache_mib << 20, ..cairn_fs::Config::default() };
    let fs = Fs::over(Meta::Remote(client), blocks, clock, config);
    let (user, revoked) = (Caller::verified(user), Box::pin(pending()));
    Ok(ReachedStore { fs, user, source, revoked, _locks: [lock, None] })
}

/// Connects as a gateway, which verifies the credentials on its own.
async fn reach_cluster(args: &MountArgs, dir: &Path, known: ServerAccess) -> Result<ReachedStore> {
    let node = ThisNode::open(dir, Role::Gateway)?;
    let own = Lock::take(dir)?;
    node.running()?.beat(move || cairn_roles::beat_of(String::new()));
    let sizes = gateway::Sizes {
        cache_bytes: args.cache_mib << 20,
        meta_cache_bytes: args.meta_cache_mib << 20,
        connections: NODE_REQUESTS,
        hasty: true,
        own: None,
    };
    let GatewayStore { fs, admit, lock, .. } =
        gateway::open(&node, sizes, &args.disk_cache).await?;
    let Some(authorization) = known.authorization else {
        return Err(Failure::new("no credentials: set CAIRN_KEY and CAIRN_SECRET"));
    };
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(authorization.header.expose());
    headers.insert(
        AUTHORIZATION,
        value.map_err(|_| {
            Failure::new("CAIRN_KEY or CAIRN_SECRET has characters that cannot be sent: check them")
        })?,
    );
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let user = admit.caller(&headers, Remote { address, tls: false }).await;
    let user = user.map_err(not_admitted)?;
    authorize(&user, Action::Mount, Resource::Store, &user.context(fs.clock().now()))?;
    let source = format!("cairn:{}", node.loaded.identity.cluster());
    let of = user.user();
    let revoked = Box::pin(async move { until_revoked(&admit, &headers, of).await });
    Ok(ReachedStore { fs, user, source, revoked, _locks: [Some(own), lock] })
}

/// Returns the failure of a mount. A user that may not mount needs the program fusermount3. If the
/// program is missing, the error is the same as if the directory were.
fn not_mounted(at: &Path, error: &std::io::Error) -> Failure {
    let shown = at.display();
    match error.kind() {
        std::io::ErrorKind::NotFound if at.exists() => Failure::new(format!(
            "mount: {shown}: only root with CAP_SYS_ADMIN mounts without fusermount3, which is not \
             there: install fuse3"
        )),
        _ => Failure::file(at, error).of("mount"),
    }
}

/// Credentials that could not be verified are not called wrong.
fn not_admitted(refused: AdmitError) -> Failure {
    match refused {
        AdmitError::Failed(error) => Failure::from(error),
        AdmitError::Credentials => {
            Failure::new("the credentials are unknown or expired: check CAIRN_KEY and CAIRN_SECRET")
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Error;

    use super::*;

    #[test]
    fn only_wrong_credentials_are_said_to_be_wrong() {
        let failed = not_admitted(AdmitError::Failed(Error::Unavailable("no master".into())));
        let said = failed.to_string();
        assert!(said.contains("no master") && !said.contains("credentials"), "{said}");
        assert!(not_admitted(AdmitError::Credentials).to_string().contains("credentials"));
    }
}
