//! The store itself, for those who may administer it.
//!
//! It is not: a collector. Numbers are taken while somebody looks at a page, once for all pages
//! that show the same, and the last minutes of them are kept.
//!
//! ```text
//!   counters of doors ──► sampler ──► screens (a page's parts) ──► the page
//!                                        └── feeds: one task a screen ──► events for all its pages
//! ```

mod feeds;
mod health;
mod live;
mod plot;
mod sampler;
mod say;
mod screen;

pub mod follow;
pub mod overview;
pub mod read_only;
pub mod requests;

use std::sync::Arc;

use cairn_auth::Action;
use cairn_base::{Error, Result, Shares};
use cairn_doors::metrics::Metrics;

use crate::inner::LoggedIn;
use crate::{limits, nav};
use feeds::Feeds;
use sampler::Sampler;

/// What a process knows of itself beyond the operations of its store.
#[derive(Clone, Default)]
pub struct Insight {}

/// All that the pages of the store have behind them.
pub struct Store {
    metrics: Arc<Metrics>,
    sampler: Sampler,
    feeds: Feeds,
    /// Of pages with numbers that change.
    places: Arc<Shares>,
}

impl Store {
    pub fn new(metrics: Arc<Metrics>, _: Insight) -> Store {
        let sampler = Sampler::new(Arc::clone(&metrics));
        let places = Shares::new(limits::LIVE_PAGES);
        Store { metrics, sampler, feeds: Feeds::default(), places }
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
