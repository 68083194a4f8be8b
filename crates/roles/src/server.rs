//! A server: the whole store in one process, with sessions for mounts.

use std::sync::Arc;

use cairn_base::{Clock, Result, Rng};
use cairn_blocks::Store;
use cairn_fs::{Fs, end_own_sessions};
use cairn_meta::Master;
use cairn_meta::master::host::Sessions;
use cairn_meta::session::LEASE;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::duties::{self, Pace, until};

/// Opens the store on top of its master, with the sessions of mounts.
///
/// # Errors
/// Those of the master.
pub async fn open(
    master: &Master,
    blocks: &Store,
    clock: Arc<dyn Clock>,
    rng: &dyn Rng,
    config: cairn_fs::Config,
) -> Result<(Fs, Arc<Sessions>)> {
    end_own_sessions(master).await?;
    let sessions = Sessions::start(master.clone(), Arc::clone(&clock), LEASE).await?;
    let (beside, blocks) = (Some(Arc::clone(&sessions)), Arc::new(blocks.clone()));
    let fs = Fs::start_beside(master.clone(), beside, blocks, clock, rng, config).await?;
    Ok((fs, sessions))
}

/// Starts its duties, which run until `stopped` is true or its sender is dropped.
pub fn start(
    work: &mut JoinSet<()>,
    fs: &Fs,
    sessions: &Arc<Sessions>,
    blocks: &Store,
    pace: Pace,
    stopped: &watch::Receiver<bool>,
) {
    work.spawn(until(stopped.clone(), duties::collect_garbage(fs.clone(), pace)));
    work.spawn(until(stopped.clone(), duties::delete_old_logs(fs.clone(), pace)));
    work.spawn(until(stopped.clone(), duties::settle_logs(fs.clone(), |_| true, pace)));
    work.spawn(until(stopped.clone(), duties::end_sessions(Arc::clone(sessions))));
    work.spawn(until(stopped.clone(), duties::compact(blocks.clone(), pace)));
}
