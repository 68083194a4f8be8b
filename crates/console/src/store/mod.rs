//! The store itself, for those who may administer it.
//!
//! It is not: a collector. Numbers are taken while somebody looks at a page, once for all pages
//! that show the same, and the last minutes of them are kept.
//!
//! ```text
//!   counters of doors ──► sampler ──► screens (a page's parts) ──► the page
//!                                        └── feeds: one task a screen ──► events for all its pages
//! ```

pub mod cluster;
pub mod doctor;
pub mod follow;
pub mod mounts;
pub mod overview;
pub mod read_only;
pub mod requests;
pub mod scrub;
pub mod tail;

mod feeds;
mod health;
mod plot;
mod sampler;
mod say;
mod screen;

use std::sync::Arc;

use cairn_auth::Action;
use cairn_base::{Error, Result, Shares};
use cairn_doors::metrics::Metrics;
use cairn_fs::Fs;
use cairn_logs::follow::Tails;

use crate::inner::LoggedIn;
use crate::{limits, nav};
use cluster::Nodes;
use doctor::Doctor;
use feeds::Feeds;
use sampler::Sampler;
use scrub::Scrubs;

/// What a process knows of itself beyond the operations of its store.
#[derive(Clone, Default)]
pub struct Insight {
    /// Where this process keeps blocks.
    pub scrubs: Option<Arc<dyn Scrubs>>,
    /// Where it is a node of a cluster.
    pub nodes: Option<Arc<dyn Nodes>>,
}

/// All that the pages of the store have behind them.
pub struct Store {
    metrics: Arc<Metrics>,
    sampler: Sampler,
    feeds: Feeds,
    doctor: Doctor,
    tails: Arc<Tails>,
    insight: Insight,
    /// Of pages that get events.
    places: Arc<Shares>,
}

impl Store {
    pub fn new(fs: &Fs, metrics: Arc<Metrics>, insight: Insight) -> Store {
        let sampler = Sampler::new(Arc::clone(&metrics));
        let places = Shares::new(limits::LIVE_PAGES);
        let tails = Tails::new(fs.clone());
        metrics.count_followers(Arc::clone(tails.counts()));
        let (feeds, doctor) = (Feeds::default(), Doctor::default());
        Store { metrics, sampler, feeds, doctor, tails, insight, places }
    }
}

/// # Errors
/// `Denied` for a user who may not administer the store.
fn admit(login: &LoggedIn) -> Result<()> {
    match nav::may(login, Action::Administer) {
        true => Ok(()),
        false => Err(Error::Denied("the pages of the store are for root".into())),
    }
}
