//! Compresses day files in the background: the bytes of many appends are gathered into few blocks.
//!
//! Only files that the intake made are compressed, at the place where it made them. In the file of
//! a day that goes on, the last appends stay as they are.

use std::collections::HashMap;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, Timestamp, limits as store_limits};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::ListBuckets;
use cairn_fs::ops::list_objects::ListedObject;
use cairn_fs::rows::Inode;
use tokio::time::{Instant, sleep};

use crate::limits::{SETTLE_AFTER, SETTLE_REST, SETTLED_FILES};
use crate::paths::BUCKETS;
use crate::retention::list;
use crate::{day, mark};

/// Remembers the files that were looked at, and how far each is compressed. A new process looks at
/// all files again.
#[derive(Default)]
pub struct Settler {
    seen: HashMap<Ino, FileSnapshot>,
}

/// The state of a file at the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileSnapshot {
    data_change: u64,
    is_closed: bool,
    /// Offset at which the next look begins.
    from: u64,
}

/// The result of a look at all files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SettledLogs {
    pub files: u64,
    pub blocks: u64,
    /// Bytes before they were compressed.
    pub bytes: u64,
}

impl Settler {
    /// Looks at all files for which `mine` returns true, in buckets for records, one block after
    /// the other. After each block it sleeps for as long as the block took.
    ///
    /// # Errors
    /// The error if files cannot be listed. Errors with one of them are logged.
    pub async fn settle(&mut self, fs: &Fs, mine: impl Fn(Ino) -> bool) -> Result<SettledLogs> {
        let (mut settled, mut after) = (SettledLogs::default(), String::new());
        loop {
            let (prefix, limit) = (BUCKETS.to_owned(), store_limits::LIST_KEYS);
            let verb = ListBuckets { prefix, after, limit };
            let (buckets, next) = fs.read(&Caller::system(), verb).await?;
            for (opened, _) in buckets {
                self.settle_bucket(fs, &opened.bucket.name, &mine, &mut settled).await?;
            }
            match next {
                Some(next) => after = next,
                None => return Ok(settled),
            }
        }
    }

    async fn settle_bucket(
        &mut self,
        fs: &Fs,
        bucket: &str,
        mine: &impl Fn(Ino) -> bool,
        settled: &mut SettledLogs,
    ) -> Result<()> {
        let mut after = String::new();
        loop {
            let page = list(fs, bucket, "", "", after).await?;
            for ListedObject { key, ino, inode } in page.objects {
                let Some((_, day)) = mark::parse(&key) else { continue };
                let is_made = mark::is_made(bucket, &key, inode.object.as_deref());
                if !is_made || !mine(ino) {
                    continue;
                }
                let is_closed = is_closed(day, fs.clock().now());
                match self.settle_file(fs, ino, &inode, is_closed, settled).await {
                    Ok(()) => {}
                    // The file is gone or has changed: the next look sees its new state.
                    Err(Error::NotFound(_)) => {}
                    Err(error) => tracing::warn!(bucket, key, %error, "a log was not compressed"),
                }
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    async fn settle_file(
        &mut self,
        fs: &Fs,
        ino: Ino,
        inode: &Inode,
        is_closed: bool,
        settled: &mut SettledLogs,
    ) -> Result<()> {
        let Some(start) = self.start(ino, inode, is_closed) else { return Ok(()) };
        let (mut from, mut reached) = (Some(start), start);
        let before = settled.bytes;
        while let Some(at) = from {
            let begun = Instant::now();
            let step = fs.coalesce_step(ino, inode.size, at, !is_closed).await?;
            settled.bytes += step.bytes;
            settled.blocks += u64::from(step.bytes > 0);
            (from, reached) = (step.next, step.settled);
            sleep(begun.elapsed().max(SETTLE_REST)).await;
        }
        settled.files += u64::from(settled.bytes > before);
        if self.seen.len() >= SETTLED_FILES {
            self.seen.clear();
        }
        let seen = FileSnapshot { data_change: inode.data_change, is_closed, from: reached };
        self.seen.insert(ino, seen);
        Ok(())
    }

    /// Returns the offset at which a look at a file begins; `None` if the file has not changed
    /// since the last look.
    fn start(&self, ino: Ino, inode: &Inode, is_closed: bool) -> Option<u64> {
        match self.seen.get(&ino) {
            Some(seen) if (seen.data_change, seen.is_closed) == (inode.data_change, is_closed) => {
                None
            }
            // When its day has ended, a file is looked at from the beginning once more.
            Some(seen) if !is_closed && seen.from <= inode.size => Some(seen.from),
            _ => Some(0),
        }
    }
}

/// Returns whether no more lines are expected for a day.
fn is_closed(number: i64, now: Timestamp) -> bool {
    let until = day::start(number.saturating_add(1)).0.saturating_add(nanos(SETTLE_AFTER));
    now.0 >= until
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_closed_an_hour_after_its_end() {
        let hour = nanos(SETTLE_AFTER);
        assert!(!is_closed(3, Timestamp(day::start(4).0 + hour - 1)));
        assert!(is_closed(3, Timestamp(day::start(4).0 + hour)));
        assert!(!is_closed(3, day::start(3)));
    }

    #[test]
    fn a_file_is_looked_at_once_more_when_it_changed_or_its_day_ended() {
        let mut settler = Settler::default();
        let inode = Inode { size: 100, data_change: 7, ..Inode::default() };
        assert_eq!(settler.start(Ino(5), &inode, false), Some(0));
        settler.seen.insert(Ino(5), FileSnapshot { data_change: 7, is_closed: false, from: 60 });
        assert_eq!(settler.start(Ino(5), &inode, false), None);
        let grown = Inode { size: 200, data_change: 8, ..inode.clone() };
        assert_eq!(settler.start(Ino(5), &grown, false), Some(60));
        assert_eq!(settler.start(Ino(5), &inode, true), Some(0));
        let shorter = Inode { size: 50, data_change: 9, ..inode };
        assert_eq!(settler.start(Ino(5), &shorter, false), Some(0));
    }
}
