//! The scrub of a member: it checks its rows and its log repeatedly, and notes since when something
//! is damaged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::Error;

use super::member::Member;
use super::scrub_results::Damage;

/// Shortest rest between two passes. The rest is also four times as long as the pass before.
const REST: Duration = Duration::from_secs(20);
const REST_PASSES: u32 = 4;

impl Member {
    /// Returns the damage at rest that was found and is not healed, if any.
    pub fn damage(&self) -> Option<Damage> {
        self.shared.scrubbed.damage.lock().clone()
    }

    /// Number of completed passes of the scrub.
    pub fn scrub_passes(&self) -> u64 {
        self.shared.scrubbed.passes.load(Ordering::Relaxed)
    }

    /// Number of damaged records of the log that are no longer needed.
    pub fn records_healed(&self) -> u64 {
        self.shared.scrubbed.healed.load(Ordering::Relaxed)
    }

    /// Notes damage that was found elsewhere.
    pub(super) fn note_damage(&self) {
        let (shared, found) = (&self.shared, self.shared.store.damage());
        let mut known = shared.scrubbed.damage.lock();
        match (&*known, found) {
            (None, Some(what)) => {
                tracing::error!(
                    member = shared.me,
                    what,
                    "the metadata here are damaged: `cairn cluster status` says what to do"
                );
                *known = Some(Damage { what, since: shared.seams.clock.now() });
            }
            (Some(_), None) => {
                tracing::info!(member = shared.me, "the metadata here are whole again");
                *known = None;
            }
            _ => {}
        }
    }

    /// Makes one pass over rows and log.
    ///
    /// # Errors
    /// Those of the disk; `Corrupt` for damage that is not healed here, which is noted.
    pub async fn scrub(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let pace = shared.scrub_pace();
        let log_pace = pace.clone();
        let log = shared.with_store(move |store| store.check_log(&log_pace)).await;
        let healed = log.as_ref().map_or(0, |healed| *healed as u64);
        shared.scrubbed.healed.fetch_add(healed, Ordering::Relaxed);
        let rows = shared.with_store(move |store| store.check_rows(&pace)).await;
        self.note_damage();
        shared.scrubbed.passes.fetch_add(1, Ordering::Relaxed);
        log.and(rows)
    }
}

/// Scrubs until the member ends.
pub async fn run(member: Arc<Member>) {
    let shared = Arc::clone(&member.shared);
    // Other members start as well, and elect a leader.
    let mut rest = shared.timing.lease;
    let mut begun = shared.now();
    loop {
        if shared.rest(shared.timing.heartbeat()).await.is_err() {
            return;
        }
        member.note_damage();
        let waited = shared.now().saturating_sub(begun);
        if waited < rest && !shared.store.suspects_log() {
            continue;
        }
        begun = shared.now();
        match member.scrub().await {
            Ok(()) | Err(Error::Corrupt { .. }) => {}
            Err(_) if shared.is_ending() => return,
            Err(error) => tracing::warn!(%error, "the scrub of the metadata did not end"),
        }
        if member.begin_comparison().await.is_err() {
            return;
        }
        let took = shared.now().saturating_sub(begun);
        rest = took + REST.max(took * REST_PASSES);
    }
}
