//! Writes back bytes that were received some time ago, unless others have written to the file
//! since.

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Timestamp};
use serde::{Deserialize, Serialize};

use super::body::open_file;
use super::write::Write;
use crate::rows::Inode;
use crate::{Context, Stop, Verb, View, erased};

/// Most by which the clock of a node may be ahead of the master's, nanoseconds. Times of files do
/// not follow a clock that is further ahead.
const AHEAD_NS: i64 = 10_000_000_000;

/// Writes, if the bytes of the file are still those that the writer had seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteOver {
    pub write: Write,
    /// [`Inode::data_change`] of the bytes that the writer had seen.
    pub base: u64,
    /// Time of change that was shown with the bytes. Earlier times are not shown afterwards.
    pub shown: Timestamp,
}

impl Verb for WriteOver {
    type Reply = Inode;
    const NAME: &'static str = "write_over";
    const LEASES_CHANGES: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        self.write.changes()
    }

    /// Writes like [`Write`].
    ///
    /// # Errors
    /// `PreconditionFailed` if the bytes of the file have changed.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Inode, Stop> {
        let Write { ino, session, opened, .. } = self.write;
        let inode = open_file(view, context, ino, session, opened)?;
        if inode.data_change != self.base && !is_planted(Bug::BaseIgnored) {
            let what = format!("inode {ino} was written to since these bytes were taken");
            return Err(Error::PreconditionFailed(what).into());
        }
        let latest = Timestamp(context.now.0.saturating_add(AHEAD_NS));
        let now = context.now.max(self.shown.min(latest));
        erased::apply(&self.write, view, &Context { now, ..context.clone() })
    }
}
