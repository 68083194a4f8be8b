//! State and seams that the parts of one member share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Clock, Error, Result, Rng, Threads};
use tokio::sync::watch;

use super::super::Later;
use super::super::row_store::Pace;
use super::contact::Contact;
use super::scrub_results::ScrubResults;
use super::store::MemberStore;
use super::timing::Timing;
use super::transfers::Transfers;
use super::work;

/// Bytes that a scrub reads in a second.
const SCRUB_RATE: u64 = 32 << 20;

/// The connection to other members.
pub trait Peers: Send + Sync + 'static {
    /// Sends `message` to `member`; the future resolves to its answer. Whether it arrives, or when,
    /// is up to the network: the caller limits its wait. The other side must know who sends it.
    fn send(&self, member: u64, message: Bytes) -> Later<Result<Bytes>>;

    /// Returns former members that were given up. They learn of the generation when they come back.
    fn former(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }
}

/// The seams that a host provides to a member.
#[derive(Clone)]
pub struct Seams {
    pub peers: Arc<dyn Peers>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// Seam for threads; `None` for threads of the operating system.
    pub threads: Option<Arc<dyn Threads>>,
}

pub struct MemberShared {
    pub store: Arc<MemberStore>,
    pub seams: Seams,
    pub timing: Timing,
    pub me: u64,
    pub generation: u64,
    pub contact: Contact,
    pub transfers: Transfers,
    pub scrubbed: ScrubResults,
    /// Set to stop a scrub.
    pub scrub_stop: Arc<AtomicBool>,
    ending: watch::Sender<bool>,
    /// Generation that has begun without this member; 0 for none.
    superseded_by: AtomicU64,
}

impl MemberShared {
    pub fn new(store: Arc<MemberStore>, seams: Seams, timing: Timing) -> MemberShared {
        let (me, generation) = (store.member(), store.generation());
        let contact = Contact::default();
        // It is unknown what it heard in an earlier process.
        contact.hear_leader(seams.clock.monotonic());
        let ending = watch::Sender::new(false);
        let superseded_by = AtomicU64::default();
        let transfers = Transfers::default();
        MemberShared {
            store,
            seams,
            timing,
            me,
            generation,
            contact,
            transfers,
            scrubbed: ScrubResults::default(),
            scrub_stop: Arc::default(),
            ending,
            superseded_by,
        }
    }

    pub fn now(&self) -> Duration {
        self.seams.clock.monotonic()
    }

    /// Runs blocking work on the store.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MemberStore) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = Arc::clone(&self.store);
        work::blocking(self.seams.threads.as_ref(), move || work(&store)).await
    }

    /// Notes that a newer generation has begun without this member: it no longer takes part, and
    /// reports that when it is opened again.
    pub async fn supersede(&self, generation: u64) {
        if generation <= self.generation || self.superseded_by.swap(generation, AcqRel) != 0 {
            return;
        }
        let noted = self.with_store(move |store| store.supersede(generation)).await;
        if let Err(error) = noted {
            tracing::error!(%error, generation, "not noted that this member is superseded");
        }
    }

    /// Returns the reason why this member no longer takes part, if it does not.
    pub fn superseded(&self) -> Option<String> {
        match self.superseded_by.load(Acquire) {
            0 => None,
            generation => Some(superseded(self.me, self.generation, generation)),
        }
    }

    /// The pace of what reads all rows in the background, until the member ends.
    pub fn scrub_pace(&self) -> Pace {
        let rate = self.seams.threads.is_none().then_some(SCRUB_RATE);
        Pace { rate, stop: Arc::clone(&self.scrub_stop), ..Pace::default() }
    }

    pub fn end(&self) {
        self.scrub_stop.store(true, Relaxed);
        self.ending.send_replace(true);
    }

    pub fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Waits until the member is being closed.
    pub async fn wait_ending(&self) {
        let mut ending = self.ending.subscribe();
        let _ = ending.wait_for(|ending| *ending).await;
    }

    /// Sleeps, but not beyond the end of the member.
    ///
    /// # Errors
    /// `Unavailable` when the member is being closed.
    pub async fn rest(&self, time: Duration) -> Result<()> {
        tokio::select! {
            biased;
            () = self.wait_ending() => Err(Error::Unavailable("this member ends".into())),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Returns whether work that failed with `error` will succeed once there is room.
    pub fn passes(&self, error: &Error) -> bool {
        matches!(error, Error::Full(_) | Error::Unavailable(_)) && self.store.failure().is_none()
    }
}

/// Describes a member that a newer generation has replaced.
pub fn superseded(member: u64, its: u64, now: u64) -> String {
    format!(
        "the metadata of member {member} are of generation {its}, and generation {now} has begun \
         without it: it was given up when another master recovered, or loaded a dump. It must not \
         serve again: let a new directory join with a new token"
    )
}
