//! `cairn server`: the whole store in one process.

pub mod doors;
pub mod log;
pub mod mounts;
pub mod open;
mod otlp;
pub mod process;
pub mod scrub;
pub mod signals;
pub mod welcome;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::HandleKey;
use cairn_roles::Pace;
use clap::ValueEnum;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::{Failure, Result};
use crate::inflight::{Role, Serving};
use crate::metadata::MetaArgs;
use open::Parts;

/// How long answers may take to fail once the store has.
const FAILED_GRACE: Duration = Duration::from_secs(2);

/// Serve a store: its S3, HTTP and NFS doors, on this machine's disk
///
/// An empty or missing DIR becomes a new store, and its first credentials are printed, once. Stop
/// it with SIGTERM or Ctrl-C: requests in progress have 30 seconds to end. Nothing acknowledged is
/// lost if it is killed instead.
///
/// Without TLS anybody on the way can read what is sent. Beyond this machine that is allowed, as
/// there may be a proxy or a trusted network, but the server warns of it: S3 clients send no
/// secret, clients of the HTTP door do.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Environment:
  CAIRN_ROOT_KEY, CAIRN_ROOT_SECRET  an access key of root to use instead of a generated one;
                                     at every start the secret of that key becomes this one
  CAIRN_META                         as --meta, where others do not see the password

Signals:
  SIGTERM, SIGINT  stop in order; a second one stops at once
  SIGHUP           read the TLS certificate again (it is also noticed when its files change)

Examples:
  cairn server /srv/cairn
  cairn server /srv/cairn --s3 0.0.0.0:9000 --http 0.0.0.0:8080 \\
      --tls-cert fullchain.pem --tls-key privkey.pem --domain s3.example.org
  cairn server /srv/cairn --nfs 0.0.0.0:2049 --nfs-client 10.0.0.0/8
  CAIRN_ROOT_KEY=admin CAIRN_ROOT_SECRET=... cairn server /data --log-format json")]
pub struct Args {
    /// The data directory
    dir: PathBuf,
    #[command(flatten)]
    meta: MetaArgs,
    /// Start although the database has standbys to which a failover may lose acknowledged changes
    #[arg(long)]
    accept_lossy_failover: bool,
    #[command(flatten)]
    doors: doors::DoorArgs,
    /// What an acknowledged write has reached
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    durability: Durability,
    /// Memory for blocks that are read often, MiB
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    cache_mib: u64,
    /// Days between two scrubs, which read and verify every block slowly; 0 for never
    #[arg(long, value_name = "N", default_value_t = 7)]
    scrub_days: u32,
    #[command(flatten)]
    log: log::LogArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Durability {
    /// The disk: a power cut loses nothing
    Sync,
    /// The memory of the kernel: blocks survive a crash of cairn, not a power cut
    Async,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let preset = welcome::preset()?;
    process::run(&args.log, serve(args, preset))
}

async fn serve(args: &Args, preset: welcome::Preset) -> Result<ExitCode> {
    let mut signals = signals::Signals::new()?;
    let tls = args.doors.load_tls()?;
    let sockets = args.doors.listen()?;
    let parts = Parts::open(args).await?;
    let _inflight = Serving::start(Role::Server, &args.dir);
    let is_preset = preset.is_some();
    let new = cairn_doors::admit::ensure_root(&parts.admit, preset).await?;
    let (stop, stopped) = watch::channel(false);
    let mut duties = JoinSet::new();
    let does = (&parts.fs, &parts.sessions, &parts.blocks);
    cairn_roles::server::start(&mut duties, does, Pace::default(), &stopped);
    let named = scrub::OnDamage::Name(Arc::clone(&parts.engine));
    scrub::start(&mut duties, &parts.blocks, named, &parts.dir, args.scrub_days, &stopped);
    let mounts = Some(mounts::of_server(&parts));
    let handles = parts.dir.seal_bytes()?.as_ref().map(HandleKey::derive);
    let offers = doors::Offers { mounts, handles, ..doors::Offers::default() };
    let served = doors::start((&parts.fs, &parts.admit), offers, &sockets, tls.clone(), &stopped)?;
    sockets.announce()?;
    match new {
        Some(credential) => welcome::show(&credential, &sockets)?,
        None if !is_preset => welcome::remind(&args.dir),
        None => {}
    }
    tracing::info!(dir = %args.dir.display(), "serving");
    let failed = parts.master.wait_failed();
    let reason = tokio::select! {
        () = signals.stop(tls.as_deref()) => None,
        reason = failed => Some(reason),
        lost = parts.dir.lost() => Some(lost.to_string()),
    };
    // The receivers live as long as the tasks do.
    let _ = stop.send(true);
    if let Some(reason) = reason {
        tokio::time::sleep(FAILED_GRACE).await;
        return Err(Failure::new(format!("the store stopped: {reason}: start it again")));
    }
    tracing::info!("stopping");
    let drained = async {
        served.join().await;
        while duties.join_next().await.is_some() {}
    };
    tokio::select! {
        () = drained => {}
        () = signals.again() => tracing::warn!("stopping at once"),
    }
    parts.close().await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}
