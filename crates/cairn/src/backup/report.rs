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
    /// Errors of the server.
    fn from(error: Error) -> Trouble {
        match error {
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
    /// Names that were printed.
    named: Mutex<HashSet<String>>,
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
        word: &str,
        name: &str,
        why: &dyn fmt::Display,
    ) -> Result<()> {
        if !self.named.lock().insert(name.to_owned()) {
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
        let named = Mutex::new(self.named.lock().clone());
        RestoreReport { named, ..RestoreReport::default() }
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
