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
use cairn_base::{Error, Result};
use cairn_doors::metrics::Metrics;
use cairn_fs::Fs;
use cairn_logs::follow::Tails;

use crate::inner::LoggedIn;
use crate::nav;
use doctor::Doctor;
use feeds::Feeds;
use sampler::Sampler;

/// All that the pages of the store have behind them.
pub struct Store {
    metrics: Arc<Metrics>,
    sampler: Sampler,
    feeds: Feeds,
    doctor: Doctor,
    tails: Arc<Tails>,
}

impl Store {
    pub fn new(fs: &Fs, metrics: Arc<Metrics>) -> Store {
        let sampler = Sampler::new(Arc::clone(&metrics));
        let tails = Tails::new(fs.clone());
        metrics.count_followers(Arc::clone(tails.counts()));
        let (feeds, doctor) = (Feeds::default(), Doctor::default());
        Store { metrics, sampler, feeds, doctor, tails }
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
