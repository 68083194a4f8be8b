//! Names that a restore left as they were or could not bring back, and counts of the others.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::Error;
use parking_lot::Mutex;

use crate::failure::{Failure, Result};
use crate::output;

/// Reason why something is not brought back.
pub enum Trouble {
    /// The one name is not; others may be.
    Single(String),
    /// Nothing further is.
    Final(Failure),
}

impl Trouble {
    /// A failure to read the backup.
    pub fn in_backup(error: Error) -> Trouble {
        Trouble::Single(format!("in the backup: {error}"))
    }
}

impl From<Error> for Trouble {
    /// Errors of the server. A quota and a read-only bucket concern one user or one bucket; a full
    /// disk and a read-only store concern everything.
    fn from(error: Error) -> Trouble {
        match error {
            Error::Full(text) if is_of_quota(&text) => Trouble::Single(text),
            Error::ReadOnly(text) if text.starts_with("bucket ") => Trouble::Single(text),
            Error::Unavailable(_)
            | Error::Denied(_)
            | Error::Full(_)
            | Error::ReadOnly(_)
            | Error::NotImplemented(_)
            | Error::Io(_) => Trouble::Final(error.into()),
            error => Trouble::Single(error.to_string()),
        }
    }
}

/// Returns whether a quota or another limit is used up, and not the disk.
fn is_of_quota(text: &str) -> bool {
    ["quota of ", "may have no more", "extended attributes on inode "]
        .iter()
        .any(|words| text.contains(words))
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Final(failure)
    }
}

/// Counts and names of a restore.
#[derive(Default)]
pub struct RestoreReport {
    files: AtomicU64,
    directories: AtomicU64,
    bytes: AtomicU64,
    others: AtomicU64,
    same: AtomicU64,
    left: AtomicU64,
    failed: AtomicU64,
    /// Printed names, each with the word before it.
    named: Mutex<HashSet<(&'static str, String)>>,
    /// Names that were printed before the comparison.
    before: HashSet<String>,
}

fn one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl RestoreReport {
    pub fn file(&self, bytes: u64) {
        one(&self.files);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn directory(&self) {
        one(&self.directories);
    }

    /// Counts a user, a key, a bucket's settings, an export or a share link.
    pub fn other(&self) {
        one(&self.others);
    }

    /// Counts something that is there and equal.
    pub fn same(&self) {
        one(&self.same);
    }

    /// Notes something that is there, differs, and stays.
    pub fn left(&self, name: &str, why: impl fmt::Display) -> Result<()> {
        self.print(&self.left, "left", name, &why)
    }

    /// Notes something that was not brought back, or is not as in the backup.
    pub fn failed(&self, name: &str, why: impl fmt::Display) -> Result<()> {
        self.print(&self.failed, "failed", name, &why)
    }

    fn print(
        &self,
        count: &AtomicU64,
        word: &'static str,
        name: &str,
        why: &dyn fmt::Display,
    ) -> Result<()> {
        let is_known = self.before.contains(name);
        if is_known || !self.named.lock().insert((word, name.to_owned())) {
            return Ok(());
        }
        one(count);
        output::line(format!("{word} {}: {why}", output::name(name)))
    }

    /// Prints what fails for one name only, and returns any other failure.
    pub fn settle(&self, name: &str, done: Result<(), Trouble>) -> Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(Trouble::Single(why)) => self.failed(name, why),
            Err(Trouble::Final(failure)) => Err(failure.of(name)),
        }
    }

    /// Makes the report of the comparison after a restore: names that were printed are not printed
    /// again.
    pub fn of_comparison(&self) -> RestoreReport {
        let before = self.named.lock().iter().map(|(_, name)| name.clone()).collect();
        RestoreReport { before, ..RestoreReport::default() }
    }

    /// Adds what a comparison has found.
    pub fn add_failures(&self, compared: RestoreReport) {
        self.failed.fetch_add(compared.failed.into_inner(), Ordering::Relaxed);
    }

    pub fn has_failures(&self) -> bool {
        self.failed.load(Ordering::Relaxed) > 0
    }

    /// Returns the counts of a restore, or of a comparison alone.
    pub fn summary(&self, only_compared: bool) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (same, left, failed) = (of(&self.same), of(&self.left), of(&self.failed));
        if only_compared {
            return format!("{same} are as in the backup, {failed} are not");
        }
        let bytes = output::human_bytes(of(&self.bytes));
        let mut text = format!("{} files, {bytes}", of(&self.files));
        for (count, words) in [
            (of(&self.directories), "directories"),
            (of(&self.others), "users, keys and settings"),
            (same, "were there and are as in the backup"),
            (left, "were there, differ and stay (--replace replaces files and settings)"),
            (failed, "are not as in the backup"),
        ] {
            if count > 0 {
                text += &format!("; {count} {words}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_hides_no_failure() {
        let report = RestoreReport::default();
        report.left("a", "it differs").unwrap();
        assert!(!report.has_failures());
        report.failed("a", "in the backup: damaged").unwrap();
        report.failed("a", "in the backup: damaged").unwrap();
        assert_eq!(report.failed.load(Ordering::Relaxed), 1);
        // A name that was printed before the comparison counts once.
        let compared = report.of_comparison();
        compared.failed("a", "it is not there").unwrap();
        compared.failed("b", "it is not there").unwrap();
        report.add_failures(compared);
        assert_eq!(report.failed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn quotas_and_buckets_that_are_read_only_end_nothing() {
        let is_single = |error: Error| matches!(Trouble::from(error), Trouble::Single(_));
        for text in [
            "the quota of bucket b, 3 bytes, is used up",
            "user a has 9 buckets, and may \
             have no more: delete something",
        ] {
            assert!(is_single(Error::Full(text.to_owned())), "{text}");
        }
        assert!(!is_single(Error::Full("the disk is full".to_owned())));
        assert!(is_single(Error::ReadOnly("bucket b takes no changes now".to_owned())));
        assert!(!is_single(Error::ReadOnly("the store takes no changes now".to_owned())));
    }
}
