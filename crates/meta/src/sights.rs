//! Inodes right before and right after an operation, which the master that runs it shows to callers
//! in the same process.

use std::sync::Arc;

use cairn_base::Ino;
use parking_lot::Mutex;
use tokio::task_local;

use crate::erased::{AnyReply, AnyVerb};
use crate::ops::posix::{find_inode, present};
use crate::rows::Inode;
use crate::{Context, Stop, View};

task_local! {
    static WANTED: Arc<SightRequest>;
}

/// An inode as POSIX shows it, before and after.
pub type Sight = (Inode, Inode);

/// The inodes to record around the operations of a task.
pub struct SightRequest {
    inodes: Vec<Ino>,
    /// State of each inode before and after; `None` if no operation ran, or if others changed the
    /// inode between two operations.
    seen: Mutex<Option<Vec<Option<Sight>>>>,
}

/// Runs `work`, and returns the state of these inodes before and after the operations that it has
/// run in this task, if the master is in this process. The caller must have the right to see them.
pub async fn seeing<T>(inodes: &[Ino], work: impl Future<Output = T>) -> (T, Vec<Option<Sight>>) {
    let wanted = Arc::new(SightRequest { inodes: inodes.to_vec(), seen: Mutex::default() });
    let done = WANTED.scope(Arc::clone(&wanted), work).await;
    let seen = wanted.seen.lock().take().unwrap_or_default();
    (done, seen)
}

/// Returns the inodes to record around the operations of this task.
pub fn wanted() -> Option<Arc<SightRequest>> {
    WANTED.try_with(Arc::clone).ok()
}

impl SightRequest {
    pub fn inodes(&self) -> &[Ino] {
        &self.inodes
    }

    /// Adds the inodes around an operation that has run.
    pub fn add(&self, sights: Vec<Option<Sight>>) {
        let mut seen = self.seen.lock();
        *seen = Some(match seen.take() {
            None => sights,
            Some(before) => before.into_iter().zip(sights).map(|(a, b)| joined(a?, b?)).collect(),
        });
    }
}

/// Joins the inode around two operations, if nobody changed it in between.
fn joined((before, between): Sight, (same, after): Sight) -> Option<Sight> {
    (between == same).then_some((before, after))
}

/// A verb that records inodes before and after it runs.
pub struct Seeing {
    pub verb: Box<dyn AnyVerb>,
    pub inodes: Vec<Ino>,
}

/// The reply of a verb, and the recorded inodes.
pub type Seen = (AnyReply, Vec<Option<Sight>>);

impl AnyVerb for Seeing {
    fn name(&self) -> &'static str {
        self.verb.name()
    }

    fn apply_any(&self, view: &mut View<'_>, context: &Context) -> Result<AnyReply, Stop> {
        let before = self.look(view, context)?;
        let reply = self.verb.apply_any(view, context)?;
        let after = self.look(view, context)?;
        let sights = before.into_iter().zip(after).map(|(before, after)| Some((before?, after?)));
        let seen: Seen = (reply, sights.collect());
        Ok(Box::new(seen))
    }
}

impl Seeing {
    fn look(&self, view: &mut View<'_>, context: &Context) -> Result<Vec<Option<Inode>>, Stop> {
        let look = |ino: &Ino| match find_inode(view, *ino) {
            Ok(inode) => present(view, context, *ino, inode).map(|(inode, _)| Some(inode)),
            Err(Stop::Fail(_)) => Ok(None),
            Err(stop) => Err(stop),
        };
        self.inodes.iter().map(look).collect()
    }
}
