//! The events of a followed object.

use bytes::Bytes;

/// An event.
#[derive(PartialEq, Eq, Debug)]
pub enum FeedEvent {
    /// A file is followed from this offset on. The day is that of the file, if it belongs to a
    /// source.
    Opened { day: Option<i64>, at: u64 },
    /// Further bytes of the file.
    Bytes { day: Option<i64>, bytes: Bytes },
    /// The end of the file: it is no longer followed.
    Closed { day: Option<i64> },
    /// The end of the feed, with the reason.
    End(&'static str),
}
