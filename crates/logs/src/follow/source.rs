//! A follower of a source: the files of its days, one after another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Error, Result, Timestamp, limits as store_limits};
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::{ByteStream, Fs, Object};
use futures_util::future::select_all;
use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::checker::Checker;
use super::event::FeedEvent;
use super::file::{FileFollower, Ready};
use super::last_lines::LastLines;
use super::tail::Tails;
use crate::limits::{DAY_LATE, DAY_LOOK};
use crate::{day, mark};

/// The place of a source.
#[derive(Clone)]
pub struct SourcePlace {
    pub caller: Caller,
    pub bucket: String,
    pub source: String,
}

pub struct SourceFeed {
    tails: Arc<Tails>,
    place: SourcePlace,
    open: Vec<Day>,
    /// Days to be opened next, each with the offset to begin at.
    next: VecDeque<(i64, u64)>,
    /// Number of the last known day; and the day and monotonic time of the last look for another
    /// one.
    last: i64,
    looked: (i64, Duration),
    /// Index of the file that is asked first.
    turn: usize,
}

/// The file of a day that is followed.
struct Day {
    number: i64,
    file: FileFollower,
}

impl SourcePlace {
    async fn open(&self, fs: &Fs, number: i64) -> Result<Object> {
        let file = mark::file(&self.source, &day::name(number));
        fs.open(&self.caller, &self.bucket, &file).await
    }

    /// Returns the days with files, at least one.
    async fn known_days(&self, fs: &Fs) -> Result<Vec<i64>> {
        let days = self.days(fs, None).await?;
        if days.is_empty() {
            let what = format!("source {}: it has no files of days here", self.source);
            Err(Error::NotFound(what))
        } else {
            Ok(days)
        }
    }

    /// Returns the days with files, after the day `after`.
    async fn days(&self, fs: &Fs, after: Option<i64>) -> Result<Vec<i64>> {
        let after = after.map(|number| mark::file(&self.source, &day::name(number)));
        let (mut days, mut after) = (Vec::new(), after.unwrap_or_default());
        loop {
            let verb = ListObjects {
                bucket: self.bucket.clone(),
                prefix: format!("{}/", self.source),
                delimiter: "/".to_owned(),
                after,
                max_keys: store_limits::LIST_KEYS,
            };
            let page = fs.read(&self.caller, verb).await?;
            let number = |key: &str| mark::parse(key).map(|(_, number)| number);
            days.extend(page.objects.iter().filter_map(|listed| number(&listed.key)));
            match page.next {
                Some(next) => after = next,
                None => return Ok(days),
            }
        }
    }
}

/// Returns the last lines of a source, and their total length in bytes.
///
/// # Errors
/// `NotFound` if the source has no files; `TooLarge` for lines that are too long.
pub async fn read_last_lines(
    fs: &Fs,
    place: &SourcePlace,
    count: usize,
) -> Result<(ByteStream, u64)> {
    let days = place.known_days(fs).await?;
    let (mut all, mut length) = (Vec::new(), 0);
    for (number, at) in place.last_lines(fs, &days, count).await? {
        let object = place.open(fs, number).await?;
        let end = object.size().max(at);
        length += end - at;
        all.push(object.send(at..end));
    }
    Ok((stream::iter(all).flatten().boxed(), length))
}

impl SourceFeed {
    /// Begins to follow a source.
    ///
    /// # Errors
    /// `NotFound` if the source has no files; `RangeNotSatisfiable` if a file is shorter than its
    /// offset.
    pub async fn new(
        tails: &Arc<Tails>,
        place: SourcePlace,
        from: SourceFrom,
    ) -> Result<SourceFeed> {
        let fs = tails.fs();
        let days = place.known_days(fs).await?;
        // A file of a later day was made by a clock that is wrong, and is ignored if there are
        // others.
        let latest = day::number(fs.clock().now()) + 1;
        let last = days.iter().rfind(|number| **number <= latest).or(days.last());
        let last = last.copied().unwrap_or_default();
        let next = match from {
            SourceFrom::End => vec![(last, place.open(fs, last).await?.size())],
            SourceFrom::Lines(count) => place.last_lines(fs, &days, count).await?,
            SourceFrom::Days(known) => {
                for (number, at) in known.iter().filter(|(number, _)| days.contains(number)) {
                    check_offset(&place.open(fs, *number).await?, *at)?;
                }
                let newest = known.last().map_or(last, |(number, _)| *number);
                let of_known = known.into_iter().filter(|(number, _)| days.contains(number));
                let newer = days.iter().filter(|number| **number > newest);
                of_known.chain(newer.map(|number| (*number, 0))).collect()
            }
        };
        // The time of the last look, as an earlier one would only cause another look.
        let (today, now) = (day::number(fs.clock().now()), fs.clock().monotonic());
        let next = VecDeque::from(next);
        let (tails, looked) = (Arc::clone(tails), (today, now));
        Ok(SourceFeed { tails, place, open: Vec::new(), next, last, looked, turn: 0 })
    }

    /// Returns the next event, with at most `most` bytes. Cancel safe.
    pub async fn next(&mut self, most: usize) -> Result<FeedEvent> {
        loop {
            match self.look().await {
                // No master answers: the files that are open are followed further.
                Err(Error::Unavailable(why)) => tracing::debug!(why, "no look for another day"),
                looked => looked?,
            }
            for _ in 0..self.open.len() {
                let turn = self.turn % self.open.len();
                self.turn = turn + 1;
                let Some(Day { number, file }) = self.open.get_mut(turn) else { break };
                let day = Some(*number);
                match file.ready(most).await? {
                    Some(Ready::Bytes(bytes)) => {
                        // A line continues with the next bytes of its own file only.
                        if bytes.last() != Some(&b'\n') {
                            self.turn = turn;
                        }
                        return Ok(FeedEvent::Bytes { day, bytes });
                    }
                    Some(Ready::Cut) => return Ok(FeedEvent::End("truncated")),
                    Some(Ready::Gone) => {
                        // The file may be made again.
                        if self.last == *number {
                            self.last -= 1;
                        }
                        self.open.remove(turn);
                        return Ok(FeedEvent::Closed { day });
                    }
                    None => {}
                }
            }
            if let Some(event) = self.turn_over().await? {
                return Ok(event);
            }
            let changes = self.open.iter_mut().map(|day| Box::pin(day.file.changed()));
            let changes: Vec<_> = changes.collect();
            let changed = async {
                if changes.is_empty() {
                    std::future::pending().await
                } else {
                    drop(select_all(changes).await)
                }
            };
            // The time is up: the next look for another day is due.
            let _ = timeout(DAY_LOOK, changed).await;
        }
    }

    /// Called when all open files were read to their end: opens the file of another day, or closes
    /// one.
    async fn turn_over(&mut self) -> Result<Option<FeedEvent>> {
        let now = self.tails.fs().clock().now();
        let has_later = self.open.len() > 1 || !self.next.is_empty();
        let is_over = |day: &Day| has_later && is_late(day.number, now);
        if let Some(at) = self.open.iter().position(is_over) {
            let day = Some(self.open.remove(at).number);
            return Ok(Some(FeedEvent::Closed { day }));
        }
        let Some((number, at)) = self.next.front().copied() else { return Ok(None) };
        let object = match self.place.open(self.tails.fs(), number).await {
            Err(Error::NotFound(_)) => {
                self.next.pop_front();
                return Ok(None);
            }
            object => object?,
        };
        check_offset(&object, at)?;
        self.next.pop_front();
        self.open.push(Day { number, file: FileFollower::new(&self.tails, &object, at) });
        Ok(Some(FeedEvent::Opened { day: Some(number), at }))
    }

    /// Looks for files of further days, at most once every [`DAY_LOOK`] and at each new day.
    async fn look(&mut self) -> Result<()> {
        let fs = self.tails.fs();
        let (now, today) = (fs.clock().monotonic(), day::number(fs.clock().now()));
        let (day, since) = self.looked;
        if now.saturating_sub(since) < DAY_LOOK && day == today {
            return Ok(());
        }
        let found = if day == today {
            // Clocks of other gateways may be ahead, so tomorrow's file is looked for, too. That
            // costs nothing while the names are cached.

            let mut found = Vec::new();
            for number in [today, today + 1].into_iter().filter(|number| *number > self.last) {
                match self.place.open(fs, number).await {
                    Ok(_) => found.push(number),
                    Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            found
        } else {
            let mut found = self.place.days(fs, Some(self.last)).await?;
            found.retain(|number| *number <= today + 1);
            found
        };
        self.looked = (today, now);
        if let Some(last) = found.last() {
            self.last = *last;
        }
        self.next.extend(found.into_iter().map(|number| (number, 0)));
        Ok(())
    }

    pub fn checker(&self) -> Checker {
        let SourcePlace { caller, bucket, source } = self.place.clone();
        let key = mark::file(&source, &day::name(self.last));
        Checker { fs: self.tails.fs().clone(), caller, bucket, key, ino: None }
    }
}

/// The place at which a follower of a source begins.
pub enum SourceFrom {
    End,
    /// The beginning of the last lines, this many.
    Lines(usize),
    Days(Vec<(i64, u64)>),
}

impl SourcePlace {
    /// Returns the days that have the last lines, each with the offset at which these begin.
    async fn last_lines(&self, fs: &Fs, days: &[i64], count: usize) -> Result<Vec<(i64, u64)>> {
        let (mut lines, mut from) = (LastLines::new(count), VecDeque::new());
        for number in days.iter().rev() {
            let object = self.open(fs, *number).await?;
            from.push_front((*number, lines.begin(&object).await?));
            if lines.wanted == 0 {
                break;
            }
        }
        Ok(from.into())
    }
}

/// Returns whether nothing is added to the file of a day any more.
fn is_late(number: i64, now: Timestamp) -> bool {
    let end = day::start(number + 1).0.saturating_add(DAY_LATE.as_nanos() as i64);
    now.0 >= end
}

pub fn check_offset(object: &Object, at: u64) -> Result<()> {
    if at <= object.size() {
        Ok(())
    } else {
        Err(Error::RangeNotSatisfiable { size: object.size() })
    }
}
