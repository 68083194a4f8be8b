//! The events of an object that is followed.

use bytes::Bytes;

/// An event.
#[derive(PartialEq, Eq, Debug)]
pub enum FeedEvent {
    /// A file is followed from here on; its day, if it is one of a source.
    Opened { day: Option<i64>, at: u64 },
    /// Further bytes of it.
    Bytes { day: Option<i64>, bytes: Bytes },
    /// Nothing more comes of it.
    Closed { day: Option<i64> },
    /// Nothing more comes at all, and why.
    End(&'static str),
}
