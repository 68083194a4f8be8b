//! The start of a member.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Disk, Error, Result};
use openraft::{Raft, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::super::config::Config;
use super::log::Log;
use super::member::Member;
use super::network::Network;
use super::shared::{MemberShared, Seams, superseded};
use super::state_machine::StateMachine;
use super::store::MemberStore;
use super::timing::Timing;
use super::{comparison, scrub, watch, work};

/// Most entries that are sent at once.
const ENTRIES_MAX: u64 = 300;
/// Most votes and questions that are answered at the same time, and most other messages.
const VOTES_AT_ONCE: usize = 32;
const MESSAGES_AT_ONCE: usize = 32;

impl Member {
    /// Opens the disk of the member `id`, which must not be 0, and takes part. Called within a
    /// runtime, whose tasks do the work from then on.
    ///
    /// # Errors
    /// Those of [`MemberStore::open`].
    pub async fn open(
        disk: Arc<dyn Disk>,
        config: Config,
        id: u64,
        seams: Seams,
        timing: Timing,
    ) -> Result<Arc<Member>> {
        if id == 0 {
            return Err(Error::Invalid("no member has the id 0".into()));
        }
        let threads = seams.threads.clone();
        let opening = move || MemberStore::open(disk, config, id);
        let store = Arc::new(work::blocking(threads.as_ref(), opening).await?);
        if store.superseded() > 0 {
            let why = superseded(id, store.generation(), store.superseded());
            return Err(Error::Denied(why));
        }
        let shared = Arc::new(MemberShared::new(store, seams, timing));
        if shared.store.bad_end().is_some() {
            tracing::warn!(
                member = id,
                "the last record of the log does not check out: this member votes once it has caught \
                 up with a leader, or when there was none for a while"
            );
            shared.contact.suspect(timing.suspicion());
        }
        let network = Network { shared: Arc::clone(&shared) };
        let (log, machine) =
            (Log::new(Arc::clone(&shared)), StateMachine::new(Arc::clone(&shared)));
        let config = Arc::new(library_config(&timing)?);
        let raft = Raft::new(id, config, network, log, machine).await;
        let raft = raft.map_err(|fatal| Error::Unavailable(format!("member {id}: {fatal}")))?;
        let member = Arc::new(Member {
            shared,
            raft,
            led: Mutex::default(),
            votes: Arc::new(Semaphore::new(VOTES_AT_ONCE)),
            messages: Arc::new(Semaphore::new(MESSAGES_AT_ONCE)),
            receiving: tokio::sync::Mutex::default(),
            runtime: Handle::current(),
            watching: Mutex::default(),
            scrubbing: Mutex::default(),
            told_purged: Mutex::default(),
            stalls: Mutex::default(),
        });
        *member.watching.lock() = Some(tokio::spawn(watch::run(Arc::clone(&member))));
        *member.scrubbing.lock() = vec![
            tokio::spawn(scrub::run(Arc::clone(&member))),
            tokio::spawn(comparison::run(Arc::clone(&member))),
        ];
        Ok(member)
    }
}

/// Returns the library's configuration: elections, heartbeats, snapshots and purges are controlled
/// here.
fn library_config(timing: &Timing) -> Result<openraft::Config> {
    let millis = |time: Duration| time.as_millis() as u64;
    let config = openraft::Config {
        cluster_name: "cairn".into(),
        heartbeat_interval: millis(timing.call()),
        // They differ by one, so that no random number is drawn.
        election_timeout_min: millis(timing.silence()),
        election_timeout_max: millis(timing.silence()) + 1,
        install_snapshot_timeout: 3_600_000,
        max_payload_entries: ENTRIES_MAX,
        replication_lag_threshold: u64::MAX / 2,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX / 2,
        enable_heartbeat: false,
        enable_elect: false,
        ..openraft::Config::default()
    };
    config.validate().map_err(|error| Error::Invalid(error.to_string()))
}
