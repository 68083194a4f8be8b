//! A directory that is open: how far it was listed. A listing goes on after the last name it gave,
//! whatever changes meanwhile: what is there all the time is listed once.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Ino, Result};
use cairn_fs::ops::readdir::{self, Listed};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::handle::Heard;
use crate::known::Moment;
use crate::who::Who;

/// `.` and `..` come first.
pub const DOTS: u64 = 2;

/// A directory that somebody has open.
pub struct Directory {
    pub ino: Ino,
    pub listing: Mutex<Listing>,
    pub heard: Heard,
}

/// Entries have positions from [`DOTS`] on, in the order in which they were given.
#[derive(Default)]
pub struct Listing {
    /// Where pages began: the first position, and the name before it.
    pages: Vec<(u64, Option<Bytes>)>,
    /// The page that was asked for last.
    pub first: u64,
    pub entries: Arc<[Listed]>,
    pub next: Option<Bytes>,
    pub has_attributes: bool,
    /// When it was asked for.
    pub moment: Option<Moment>,
    /// The page after it, already asked for.
    pub ahead: Option<Ahead>,
}

pub struct Ahead {
    pub who: Who,
    pub after: Option<Bytes>,
    pub found: JoinHandle<Result<Found>>,
}

/// A page, and when it was asked for.
pub struct Found {
    pub page: readdir::Page,
    pub moment: Moment,
}

/// Where a page begins: its first position, and the name before it.
pub type Start = (u64, Option<Bytes>);

impl Listing {
    /// From the beginning, as it is now.
    pub fn restart(&mut self) {
        *self = Listing { pages: vec![(DOTS, None)], first: DOTS, ..Listing::default() };
    }

    /// The position behind the page.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Where the page with position `at` began.
    pub fn page_with(&self, at: u64) -> Option<Start> {
        self.pages.iter().rev().find(|(first, _)| *first <= at).cloned()
    }

    /// Where a page with `at`, a position of this one, as its first goes on after.
    pub fn before(&self, at: u64) -> Option<Bytes> {
        match (at - self.first).checked_sub(1) {
            Some(index) => Some(self.entries[index as usize].cursor()),
            None => self.page_with(at).and_then(|(_, after)| after),
        }
    }

    /// The next page to ask for is one that begins so.
    pub fn begin(&mut self, (first, after): Start) {
        if self.pages.last().is_none_or(|(last, _)| *last < first) {
            self.pages.push((first, after.clone()));
        }
        (self.first, self.next) = (first, after);
        self.entries = Arc::default();
    }
}

impl Directory {
    pub fn new(ino: Ino, heard: Heard) -> Directory {
        Directory { ino, listing: Mutex::default(), heard }
    }
}
