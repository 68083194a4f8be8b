//! Warns while the file system of a data directory fills up, before writes are refused.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cairn_doors::metrics::{MoreNumbers, gauge};
use rustix::fs::statvfs;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

/// Interval of looks at the space.
const LOOK: Duration = Duration::from_secs(60);
/// Used share from which on there is a warning, percent.
const FILLING: f64 = 85.0;
const FULL: f64 = 95.0;
/// Amount by which the share must fall before there is another warning, percent: a share that
/// varies around a bound causes one warning.
const LESS: f64 = 2.0;

/// The space of a file system, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Space {
    used: u64,
    /// Free bytes for users other than root.
    free: u64,
}

impl Space {
    fn of(path: &Path) -> io::Result<Space> {
        let found = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let used = bytes(found.f_blocks.saturating_sub(found.f_bfree));
        Ok(Space { used, free: bytes(found.f_bavail) })
    }

    /// Returns the used share as `df` shows it, percent.
    fn percent(self) -> f64 {
        100.0 * self.used as f64 / self.used.saturating_add(self.free).max(1) as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fill {
    Fine,
    Filling,
    Full,
}

impl Fill {
    /// Returns the next state after `self`.
    fn then(self, percent: f64) -> Fill {
        let bound = |bound: f64, is_beyond: bool| if is_beyond { bound - LESS } else { bound };
        if percent >= bound(FULL, self == Fill::Full) {
            Fill::Full
        } else if percent >= bound(FILLING, self >= Fill::Filling) {
            Fill::Filling
        } else {
            Fill::Fine
        }
    }
}

/// Looks every minute until `stopped` or its sender is gone. Logs each bound once when it is
/// reached.
pub fn start(work: &mut JoinSet<()>, directory: &Path, stopped: &watch::Receiver<bool>) {
    let (directory, mut stopped) = (directory.to_owned(), stopped.clone());
    work.spawn(async move {
        tokio::select! {
            () = look(directory) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
}

async fn look(directory: PathBuf) {
    let mut timer = interval(LOOK);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut fill = Fill::Fine;
    loop {
        timer.tick().await;
        let path = directory.clone();
        let Ok(Ok(space)) = spawn_blocking(move || Space::of(&path)).await else { continue };
        let now = fill.then(space.percent());
        if now > fill {
            say(&directory, now, space);
        }
        fill = now;
    }
}

fn say(directory: &Path, fill: Fill, space: Space) {
    let (dir, free_bytes) = (directory.display(), space.free);
    let percent = space.percent() as u64;
    match fill {
        Fill::Fine => {}
        Fill::Filling => tracing::warn!(
            %dir, percent, free_bytes,
            "the file system is filling up: delete objects, or add space"
        ),
        Fill::Full => tracing::error!(
            %dir, percent, free_bytes,
            "the file system is almost full: writes will be refused, reads and deletes go on: \
             delete objects, or add space"
        ),
    }
}

/// Returns the space of the file system as metrics.
pub fn numbers(directory: &Path) -> MoreNumbers {
    let directory = directory.to_owned();
    Arc::new(move || {
        let Ok(Space { used, free }) = Space::of(&directory) else { return Vec::new() };
        let all = used.saturating_add(free);
        vec![
            gauge("disk_bytes", "Bytes of the file system of the data directory", all),
            gauge("disk_free_bytes", "Bytes free there", free),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_said_once() {
        let mut fill = Fill::Fine;
        let mut said = Vec::new();
        for percent in [10.0, 84.9, 85.0, 84.0, 85.5, 94.9, 95.0, 94.0, 95.1, 92.0, 80.0, 96.0] {
            let now = fill.then(percent);
            if now > fill {
                said.push((percent, now));
            }
            fill = now;
        }
        let expected = [(85.0, Fill::Filling), (95.0, Fill::Full), (96.0, Fill::Full)];
        assert_eq!(said, expected);
    }

    #[test]
    fn space_is_that_of_the_file_system() {
        let space = Space::of(Path::new("/")).unwrap();
        assert!(space.used > 0 && (0.0..=100.0).contains(&space.percent()), "{space:?}");
        assert!(Space::of(Path::new("/nonexistent")).is_err());
    }
}
