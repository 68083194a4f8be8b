//! The store itself, for those who may administer it.
//!
//! It is not: a collector. Numbers are taken while somebody looks at a page (`looks/`).
//!
//! ```text
//!   counters of doors ──► looks/ ──► screens (a page's parts) ──► the page
//!                                        └── feeds: one task a screen ──► events for all its pages
//! ```

pub mod cluster;
pub mod doctor;
pub mod follow;
pub mod mounts;
pub mod node_changes;
pub mod overview;
pub mod read_only;
pub mod requests;
pub mod scrub;
pub mod tail;

mod cluster_fsck;
mod cluster_scrub;
mod degraded_objects;
mod health;
mod masters;
mod plot;
mod say;
mod screen;

use cairn_auth::Action;
use cairn_base::{Error, Result};

use crate::inner::LoggedIn;
use crate::nav;

/// Admits users that may administer the store.
///
/// # Errors
/// `Denied` for other users.
fn admit(login: &LoggedIn) -> Result<()> {
    if nav::may(login, Action::Administer) {
        Ok(())
    } else {
        Err(Error::Denied("the pages of the store are for root".into()))
    }
}
