//! Waits until the serving master has ended or cannot serve any more.

#![expect(clippy::disallowed_methods, reason = "a database is not simulated")]

use std::time::{Duration, Instant};

use cairn_base::waits;
use cairn_base::{Error, Result};
use tokio_postgres::Row;

use super::config::{Config, Turn};
use super::link::DatabaseLink;
use super::schema;
use super::target::Target;

/// Number of looks at the fence per lease. The interval is at most `POLL_MAX`.
const POLLS: u32 = 10;
const POLL_MAX: Duration = Duration::from_millis(300);
/// Time that is waited beyond the lease, per cent of it, since no two clocks run at the same rate.
const MARGIN_PERCENT: u32 = 10;

/// The situation that a standby meets.
#[derive(Debug)]
pub enum Standby {
    /// Another master serves, as of this epoch.
    Waiting { epoch: u64 },
    /// The database does not answer; it is asked repeatedly.
    Unreachable(Error),
}

/// The row of the fence at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FenceRow {
    turn: Turn,
    /// Lease of the master that wrote the row.
    lease: Duration,
}

/// A standby that waits for its turn.
struct Watch<'a> {
    target: Target,
    link: Option<DatabaseLink>,
    /// Last change that was seen, and the time when it was first seen.
    last: Option<(FenceRow, Instant)>,
    unreachable: bool,
    told: &'a dyn Fn(Standby),
}

/// Waits until no other master serves: there never was one, it gave up, or it did not renew its
/// lease in time. Returns the master to take over from, see [`Config::turn`]; `None` when
/// `stopped`. Makes the tables if there are none. Calls `told` with the reason for waiting whenever
/// it changes.
///
/// # Errors
/// Those of [`super::Postgres::open`] as long as the database has not answered once, except
/// `Unavailable`: then it waits.
pub fn wait_for_turn(
    config: &Config,
    stopped: &dyn Fn() -> bool,
    told: &dyn Fn(Standby),
) -> Result<Option<Turn>> {
    let target = Target::new(config)?;
    let mut watch = Watch { target, link: None, last: None, unreachable: false, told };
    let mut answered = false;
    while !stopped() {
        let pause = match watch.look() {
            Ok(seen) => {
                answered = true;
                if watch.is_turn(seen) {
                    return Ok(Some(seen.turn));
                }
                POLL_MAX.min(seen.lease / POLLS)
            }
            Err(error @ (Error::Unavailable(_) | Error::Io(_))) => watch.lost(error),
            Err(error) if answered => watch.lost(error),
            Err(error) => return Err(error),
        };
        std::thread::sleep(pause);
    }
    Ok(None)
}

impl Watch<'_> {
    fn look(&mut self) -> Result<FenceRow> {
        let target = &self.target;
        let link = match self.link.take() {
            Some(link) => self.link.insert(link),
            None => {
                let link = target.connect()?;
                schema::prepare(target, &link, true)?;
                self.link.insert(link)
            }
        };
        let rows = link.query_within(target.lease() * 2, &target.sql.watch, &[]);
        let rows = rows.map_err(|fault| fault.at(target.shown()))?;
        let seen = rows.first().and_then(parse);
        self.unreachable = false;
        seen.ok_or_else(|| Error::corrupt(target.shown(), "no fence", "one row in the table fence"))
    }

    /// Returns whether the master that wrote this row no longer serves.
    fn is_turn(&mut self, seen: FenceRow) -> bool {
        if seen.turn.heartbeat == 0 {
            return true;
        }
        let now = Instant::now();
        match self.last {
            Some((last, since)) if last == seen => {
                now.duration_since(since) > seen.lease * (100 + MARGIN_PERCENT) / 100
            }
            last => {
                if last.is_none_or(|(last, _)| last.turn.epoch != seen.turn.epoch) {
                    (self.told)(Standby::Waiting { epoch: seen.turn.epoch.unsigned_abs() });
                }
                self.last = Some((seen, now));
                false
            }
        }
    }

    /// Handles a lost connection; returns the pause. While the database cannot be reached, no lease
    /// can be renewed either: once it answers, the serving master gets its full time to do so.
    fn lost(&mut self, error: Error) -> Duration {
        (self.link, self.last) = (None, None);
        if !std::mem::replace(&mut self.unreachable, true) {
            (self.told)(Standby::Unreachable(error));
        }
        waits::DATABASE_RETRY
    }
}

fn parse(row: &Row) -> Option<FenceRow> {
    let number = |column| row.try_get::<_, i64>(column).ok();
    let turn = Turn { epoch: number(0)?, heartbeat: number(1)?, batch: number(2)? };
    let lease = Duration::from_millis(u64::try_from(number(3)?).ok()?);
    Some(FenceRow { turn, lease })
}
