//! The feed of a follower: of an object, or of a source.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_fs::{ByteStream, Fs};

use super::checker::Checker;
use super::event::FeedEvent;
use super::file::{FileFollower, Ready};
use super::last_lines::LastLines;
use super::position::Position;
use super::source::{SourceFeed, SourceFrom, SourcePlace, check_offset, read_last_lines};
use super::tail::Tails;

/// The place at which a follower begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum From {
    /// The end: only bytes that are added later.
    End,
    /// The beginning of the last lines, this many.
    Lines(usize),
    At(Position),
}

/// The object or source to be followed, and the caller.
pub struct FollowRequest<'a> {
    pub caller: &'a Caller,
    pub bucket: &'a str,
    /// Key of an object, or name of a source followed by a slash.
    pub key: &'a str,
    pub from: From,
}

pub enum Feed {
    Object(ObjectFeed),
    Source(SourceFeed),
}

pub struct ObjectFeed {
    checker: Checker,
    file: FileFollower,
    /// Offset at which the feed begins, until the follower has received the event that says so.
    begin: Option<u64>,
}

impl Feed {
    /// Begins to follow an object or source.
    ///
    /// # Errors
    /// Those of opening an object; `Invalid` for a position of the other kind;
    /// `RangeNotSatisfiable` for a position behind the end.
    pub async fn new(tails: &Arc<Tails>, wanted: FollowRequest<'_>) -> Result<Feed> {
        let FollowRequest { caller, bucket, key, from } = wanted;
        if let Some(source) = key.strip_suffix('/') {
            let from = match from {
                From::End => SourceFrom::End,
                From::Lines(count) => SourceFrom::Lines(count),
                From::At(Position::Days(days)) => SourceFrom::Days(days),
                From::At(Position::Offset(_)) => return Err(bad("DAY:OFFSET of a source")),
            };
            let (caller, bucket) = (caller.clone(), bucket.to_owned());
            let place = SourcePlace { caller, bucket, source: source.to_owned() };
            return Ok(Feed::Source(SourceFeed::new(tails, place, from).await?));
        }
        let object = tails.fs().open(caller, bucket, key).await?;
        let at = match from {
            From::End => object.size(),
            From::Lines(count) => LastLines::new(count).begin(&object).await?,
            From::At(Position::Offset(at)) => at,
            From::At(Position::Days(_)) => return Err(bad("a number of an object")),
        };
        check_offset(&object, at)?;
        let file = FileFollower::new(tails, &object, at);
        let checker = Checker {
            fs: tails.fs().clone(),
            caller: caller.clone(),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            ino: Some(file.ino()),
        };
        Ok(Feed::Object(ObjectFeed { checker, file, begin: Some(at) }))
    }

    /// Returns the offset at which the feed of an object begins, unless that was sent already;
    /// `None` for a source.
    pub fn begin(&self) -> Option<u64> {
        match self {
            Feed::Object(feed) => feed.begin,
            Feed::Source(_) => None,
        }
    }

    /// Returns the next event, with at most `most` bytes. Cancel safe.
    pub async fn next(&mut self, most: usize) -> Result<FeedEvent> {
        match self {
            Feed::Object(feed) => feed.next(most).await,
            Feed::Source(feed) => feed.next(most).await,
        }
    }

    /// Returns the checker that finds out regularly whether the caller may go on.
    pub fn checker(&self) -> Checker {
        match self {
            Feed::Object(feed) => feed.checker.clone(),
            Feed::Source(feed) => feed.checker(),
        }
    }
}

/// Returns the last lines of an object or a source, and their total length in bytes.
///
/// # Errors
/// Those of opening an object; `TooLarge` for lines that are too long.
pub async fn last_lines(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    key: &str,
    count: usize,
) -> Result<(ByteStream, u64)> {
    if let Some(source) = key.strip_suffix('/') {
        let (bucket, source) = (bucket.to_owned(), source.to_owned());
        let place = SourcePlace { caller: caller.clone(), bucket, source };
        return read_last_lines(fs, &place, count).await;
    }
    let object = fs.open(caller, bucket, key).await?;
    let (at, size) = (LastLines::new(count).begin(&object).await?, object.size());
    Ok((object.send(at..size), size - at))
}

fn bad(use_this: &str) -> Error {
    Error::Invalid(format!("offset: use {use_this}, as an earlier reply had it"))
}

impl ObjectFeed {
    async fn next(&mut self, most: usize) -> Result<FeedEvent> {
        if let Some(at) = self.begin.take() {
            return Ok(FeedEvent::Opened { day: None, at });
        }
        loop {
            match self.file.ready(most).await? {
                Some(Ready::Bytes(bytes)) => {
                    return Ok(FeedEvent::Bytes { day: None, bytes });
                }
                Some(Ready::Cut) => return Ok(FeedEvent::End("truncated")),
                Some(Ready::Gone) => {
                    let why = self.checker.check().await.unwrap_or(None).unwrap_or("deleted");
                    return Ok(FeedEvent::End(why));
                }
                None => self.file.changed().await,
            }
        }
    }
}
