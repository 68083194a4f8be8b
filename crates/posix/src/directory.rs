//! An open directory, and its position in the listing. A listing continues after the last name that
//! it returned, whatever changes meanwhile: an entry that exists all the time is listed once.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Ino, Result};
use cairn_fs::ops::readdir::{self, ListedEntry};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::handle::Heard;
use crate::kernel_view::Moment;
use crate::who::Who;

/// Number of positions for `.` and `..`, which come first.
pub const DOTS: u64 = 2;

/// A directory that a program has open.
pub struct Directory {
    pub ino: Ino,
    pub listing: Mutex<Listing>,
    pub heard: Heard,
}

/// The entries of a listing. They have positions from [`DOTS`] on, in the order in which they were
/// listed.
#[derive(Default)]
pub struct Listing {
    /// Beginnings of pages: the first position, and the name before it.
    pages: Vec<(u64, Option<Bytes>)>,
    /// First position of the current page.
    pub first: u64,
    pub entries: Arc<[ListedEntry]>,
    pub next: Option<Bytes>,
    pub has_attributes: bool,
    /// Moment at which the page was asked for.
    pub moment: Option<Moment>,
    /// The page after this one, if it was already asked for.
    pub ahead: Option<Ahead>,
}

pub struct Ahead {
    pub who: Who,
    pub after: Option<Bytes>,
    pub found: JoinHandle<Result<FetchedPage>>,
}

/// A page, and the moment at which it was asked for.
pub struct FetchedPage {
    pub page: readdir::Page,
    pub moment: Moment,
}

/// The beginning of a page: its first position, and the name before it.
pub type Start = (u64, Option<Bytes>);

impl Listing {
    /// Restarts from the beginning, with the present entries.
    pub fn restart(&mut self) {
        *self = Listing { pages: vec![(DOTS, None)], first: DOTS, ..Listing::default() };
    }

    /// Returns the position behind the page.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns the beginning of the page with position `at`.
    pub fn page_with(&self, at: u64) -> Option<Start> {
        self.pages.iter().rev().find(|(first, _)| *first <= at).cloned()
    }

    /// Returns the name after which a page has to continue so that it begins at `at`, a position in
    /// the current page.
    pub fn before(&self, at: u64) -> Option<Bytes> {
        match (at - self.first).checked_sub(1) {
            Some(index) => Some(self.entries[index as usize].cursor()),
            None => self.page_with(at).and_then(|(_, after)| after),
        }
    }

    /// Sets the beginning of the next page to ask for.
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
