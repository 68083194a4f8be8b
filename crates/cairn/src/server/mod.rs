//! `cairn server`: the whole store in one process.

pub mod acme;
mod args;
pub mod doors;
pub mod log;
mod metadata_check;
pub mod mounts;
pub mod open;
pub mod otlp;
pub mod process;
pub mod records;
pub mod scrub;
pub mod signals;
pub mod space;
pub mod welcome;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::HandleKey;
use cairn_console::Insight;
use cairn_roles::Pace;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::dir::DirectoryUse;
use crate::failure::{Failure, Result};
use crate::inflight::{Role, Serving};
pub use args::ServerArgs;
use open::Parts;

/// Time in which answers may still fail after the store has failed.
const FAILED_GRACE: Duration = Duration::from_secs(2);

pub fn run(args: &ServerArgs) -> Result<ExitCode> {
    DirectoryUse::Server.require(&args.dir)?;
    let preset = welcome::chosen(args.root_key.as_deref(), args.root_secret_file.as_deref())?;
    // Refused before anything is made.
    args.sizes()?;
    args.doors.records.keep_own_log();
    process::run(&args.log, serve(args, preset))
}

/// Returns the failure of a door, or that of the directory if another server has both: then another
/// port would not help.
fn of_directory(args: &ServerArgs, failure: Failure) -> Failure {
    let used = if failure.is_taken() { crate::dir::lock::used(&args.dir) } else { None };
    used.unwrap_or(failure)
}

fn listen(args: &ServerArgs) -> Result<doors::Sockets> {
    args.doors.listen(Role::Server).map_err(|failure| of_directory(args, failure))
}

async fn serve(args: &ServerArgs, preset: welcome::Preset) -> Result<ExitCode> {
    args.config.announce();
    let mut signals = signals::Signals::new()?;
    let (tls, acme) = args.doors.load_tls()?;
    let sockets = listen(args)?;
    let parts = Parts::open(args).await?;
    let _inflight = Serving::start(Role::Server, &args.dir);
    let is_preset = preset.is_some();
    let new = cairn_doors::admit::ensure_root(&parts.admit, preset).await?;
    let (stop, stopped) = watch::channel(false);
    let mut duties = JoinSet::new();
    let Parts { fs, sessions, blocks, .. } = &parts;
    cairn_roles::server::start(&mut duties, fs, sessions, blocks, Pace::default(), &stopped);
    let named = scrub::OnDamage::Name(Arc::clone(&parts.engine));
    let days = args.scrub_days;
    let scrubs = scrub::start(&mut duties, &parts.blocks, named, &parts.dir, days, &stopped);
    space::start(&mut duties, &args.dir, &stopped);
    let (records, sinks) = args.doors.records.start(&parts.fs, "server")?;
    if let Some(log) = records.audit() {
        parts.sessions.audit_to(log.clone());
    }
    let (mounts, of_mounts) = mounts::of_server(&parts);
    let handles = parts.dir.seal_bytes()?.as_ref().map(HandleKey::derive);
    let others = vec![space::numbers(&args.dir), parts.sizes.numbers(), of_mounts];
    let numbers = metadata_check::start(&mut duties, &parts, others, &stopped);
    let insight = Insight { scrubs: Some(scrubs), ..Insight::default() };
    let offers = doors::Offers {
        mounts: Some(mounts),
        handles,
        records,
        lines: sinks.queues().to_vec(),
        numbers,
        insight,
        ..doors::Offers::default()
    };
    let served =
        doors::start(&parts.fs, &parts.admit, offers, &sockets, tls.clone(), acme, &stopped)?;
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
    // The receivers live as long as the tasks.
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
    sinks.close().await;
    parts.close().await?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}
