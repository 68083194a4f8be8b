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
    /// [`Report::kind`] of its loads.
    pub kind: &'static str,
    /// Approximate number of bytes on the disk.
    pub needs: fn(&ReportsArgs) -> u64,
    pub run: fn(&Lab, &mut Session) -> Result<()>,
    pub sections: fn(&ReportsArgs, &Report) -> Vec<Section>,
}

/// Starts a peer; if it is not there, the result says why.
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
