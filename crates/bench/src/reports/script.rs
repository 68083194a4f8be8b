//! The parts that all scenarios share.

use super::arguments::ReportsArgs;
use super::lab::Lab;
use crate::error::Result;
use crate::report::{Report, Section};
use crate::session::Session;

/// A scenario.
pub struct Script {
    pub title: &'static str,
    pub about: &'static str,
    /// The [`Report::kind`] of its loads.
    pub kind: &'static str,
    /// Bytes on the disk, about.
    pub needs: fn(&ReportsArgs) -> u64,
    pub run: fn(&Lab, &mut Session) -> Result<()>,
    pub sections: fn(&ReportsArgs, &Report) -> Vec<Section>,
}

/// Starts a peer; where it is not there, the result says why.
pub fn peer<T>(session: &mut Session, name: &str, start: impl FnOnce() -> Result<T>) -> Option<T> {
    session.say(&format!("starting {name}"));
    match start() {
        Ok(started) => Some(started),
        Err(error) => {
            session.absent(name, error);
            None
        }
    }
}
