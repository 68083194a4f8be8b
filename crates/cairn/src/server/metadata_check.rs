//! Check of metadata that only this machine has: every row and every page, again and again. Damage
//! is logged with its remedy. No other machine has the metadata, so nothing heals here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_base::Error;
use cairn_doors::metrics::{MoreNumbers, counter, gauge};
use cairn_meta::engine::{EmbeddedEngine, Pace};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::open::Parts;
use crate::failure::DAMAGED_METADATA;

/// Delay of the first pass after the start.
const FIRST: Duration = Duration::from_secs(2);
/// Bytes that a pass reads per second, at most.
const RATE: u64 = 16 << 20;
/// Pause between two passes, at least. It is also `REST_PASSES` times as long as the previous pass.
const REST: Duration = Duration::from_secs(60);
const REST_PASSES: u32 = 9;

/// Checks the metadata until `stopped`, if only this server has them. Returns the metrics about it,
/// in addition to `numbers`.
pub fn start(
    work: &mut JoinSet<()>,
    parts: &Parts,
    mut numbers: Vec<MoreNumbers>,
    stopped: &watch::Receiver<bool>,
) -> Vec<MoreNumbers> {
    let Some(engine) = parts.embedded() else { return numbers };
    let place = parts.dir.meta();
    let (since, passes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let pace = Pace { rate: Some(RATE), stop: Arc::clone(&stop), ..Pace::default() };
    let check =
        Check { engine, place, since: Arc::clone(&since), passes: Arc::clone(&passes), pace };
    let mut stopped = stopped.clone();
    work.spawn(async move {
        tokio::select! {
            () = check.run() => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        stop.store(true, Ordering::Relaxed);
    });
    let damage = move || {
        let help = "Since when the metadata here are known to be damaged, Unix seconds; 0: no";
        let damaged = gauge("master_damaged_since", help, since.load(Ordering::Relaxed));
        let help = "Passes of the check over all metadata here";
        vec![damaged, counter("master_scrub_passes", help, passes.load(Ordering::Relaxed))]
    };
    numbers.push(Arc::new(damage));
    numbers
}

struct Check {
    engine: Arc<EmbeddedEngine>,
    place: PathBuf,
    since: Arc<AtomicU64>,
    passes: Arc<AtomicU64>,
    pace: Pace,
}

impl Check {
    /// Runs forever.
    async fn run(&self) {
        let mut rest = FIRST;
        loop {
            sleep(rest).await;
            let begun = Instant::now();
            let (engine, pace) = (Arc::clone(&self.engine), self.pace.clone());
            match spawn_blocking(move || engine.check_rows(&pace)).await {
                Ok(Err(error @ Error::Corrupt { .. })) => self.say(&error),
                Ok(Err(error)) => tracing::warn!(%error, "the check of the metadata did not end"),
                Ok(Ok(())) | Err(_) => {}
            }
            self.passes.fetch_add(1, Ordering::Relaxed);
            rest = REST.max(begun.elapsed() * REST_PASSES);
        }
    }

    fn say(&self, error: &Error) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
        let _ = self.since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let file = self.place.join("rows.redb");
        tracing::error!(
            file = %file.display(),
            %error,
            "the metadata are damaged: `cairn fsck` of the stopped server names the objects. \
             {DAMAGED_METADATA}"
        );
    }
}
