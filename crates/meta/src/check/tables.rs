//! Walks whole tables, and parses the numbers within their keys.

use bytes::Bytes;
use cairn_base::{BodyId, Result};

use super::facts::Facts;
use super::portion::Portion;
use super::report::{About, Report};
use crate::engine::Snapshot;
use crate::rows::Row;

/// Rows read at a time.
const PAGE: usize = 1000;

/// All rows of one table, page by page.
pub struct Table<'a> {
    snapshot: &'a dyn Snapshot,
    next: Vec<u8>,
    end: Bytes,
    page: std::vec::IntoIter<(Bytes, Bytes)>,
    last_page: bool,
}

impl<'a> Table<'a> {
    /// Starts at the beginning of the table whose keys begin with `letter`.
    pub fn of(snapshot: &'a dyn Snapshot, letter: u8) -> Table<'a> {
        Table::from(snapshot, vec![letter])
    }

    /// Reads the rows with `start <= key < end`.
    pub fn between(snapshot: &'a dyn Snapshot, start: &[u8], end: Bytes) -> Table<'a> {
        let page = Vec::new().into_iter();
        Table { snapshot, next: start.to_vec(), end, page, last_page: false }
    }

    /// Starts after `key` in its table.
    pub fn after(snapshot: &'a dyn Snapshot, key: &[u8]) -> Table<'a> {
        Table::from(snapshot, [key, &b"\0"[..]].concat())
    }

    fn from(snapshot: &'a dyn Snapshot, next: Vec<u8>) -> Table<'a> {
        let end = Bytes::from(vec![next.first().map_or(u8::MAX, |letter| letter + 1)]);
        Table::between(snapshot, &next, end)
    }

    fn turn(&mut self) -> Result<()> {
        let rows = self.snapshot.scan(&self.next, &self.end, PAGE)?;
        self.last_page = rows.len() < PAGE;
        if let Some((key, _)) = rows.last() {
            self.next = [key, &b"\0"[..]].concat();
        }
        self.page = rows.into_iter();
        Ok(())
    }
}

impl Iterator for Table<'_> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.page.next() {
                return Some(Ok(row));
            }
            if self.last_page {
                return None;
            }
            if let Err(error) = self.turn() {
                self.last_page = true;
                return Some(Err(error));
            }
        }
    }
}

/// Parses the number behind the table's letter.
pub fn number(key: &[u8]) -> Option<u64> {
    key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)
}

/// Parses the number of a key with nothing behind it.
pub fn only_number(key: &[u8]) -> Option<u64> {
    number(key).filter(|_| key.len() == 9)
}

/// Parses the body of a key with nothing behind it.
pub fn only_body(key: &[u8]) -> Option<BodyId> {
    key.get(1..)?.try_into().ok().map(BodyId::from_bytes)
}

/// Parses the body and chunk of a key of extents.
pub fn chunk_key(key: &[u8]) -> Option<(BodyId, u32)> {
    let body = key.get(1..17)?.try_into().ok().map(BodyId::from_bytes)?;
    let chunk = key.get(17..)?.try_into().ok().map(u32::from_be_bytes)?;
    Some((body, chunk))
}

/// A check in progress.
pub struct Checker<'a> {
    pub snapshot: &'a dyn Snapshot,
    pub portion: Portion,
    /// Number of facts beyond which no more rows are read.
    most: usize,
    /// True if the totals of users were counted, and are compared.
    pub is_counted: bool,
    /// The value that orders of entries must have to count; `None` if none of them does.
    pub ordered_since: Option<u64>,
    progress: &'a mut dyn FnMut(u64),
    pub facts: Facts,
    pub report: Report,
}

impl<'a> Checker<'a> {
    pub fn new(
        snapshot: &'a dyn Snapshot,
        portion: Portion,
        most: usize,
        progress: &'a mut dyn FnMut(u64),
    ) -> Checker<'a> {
        let report = Report { batch: snapshot.batch(), ..Report::default() };
        let facts = Facts::default();
        let (is_counted, ordered_since) = (false, None);
        Checker { snapshot, portion, most, is_counted, ordered_since, progress, facts, report }
    }

    /// Adds a finding that concerns no inode, body or upload, once for all portions.
    pub fn add_once(&mut self, about: About, what: impl Into<String>) {
        if self.portion.is_first() {
            self.report.add(about, what);
        }
    }

    /// Calls `visit` with each row of a table. `parse` parses the key; a key that it refuses is a
    /// finding, as is a row that cannot be decoded.
    pub fn each<K, T>(
        &mut self,
        letter: u8,
        parse: impl Fn(&Bytes) -> Option<K>,
        decode: impl Fn(&Bytes) -> Result<T>,
        visit: impl FnMut(&mut Checker<'a>, K, T),
    ) -> Result<()> {
        self.each_of(Table::of(self.snapshot, letter), parse, decode, visit)
    }

    /// Calls back like [`Checker::each`], for the rows of a range.
    pub fn each_within<K, T>(
        &mut self,
        (start, end): (Bytes, Bytes),
        parse: impl Fn(&Bytes) -> Option<K>,
        decode: impl Fn(&Bytes) -> Result<T>,
        visit: impl FnMut(&mut Checker<'a>, K, T),
    ) -> Result<()> {
        self.each_of(Table::between(self.snapshot, &start, end), parse, decode, visit)
    }

    fn each_of<K, T>(
        &mut self,
        table: Table<'a>,
        parse: impl Fn(&Bytes) -> Option<K>,
        decode: impl Fn(&Bytes) -> Result<T>,
        mut visit: impl FnMut(&mut Checker<'a>, K, T),
    ) -> Result<()> {
        for row in table {
            let (key, row) = row?;
            if self.facts.kept() > self.most {
                return Ok(());
            }
            self.report.rows += 1;
            if self.report.rows.is_multiple_of(PAGE as u64) {
                (self.progress)(self.report.rows);
            }
            match (parse(&key), decode(&row)) {
                (Some(parsed), Ok(row)) => visit(self, parsed, row),
                (None, _) => self.add_once(About::Row(key), "a key of an unknown form"),
                (_, Err(error)) => self.add_once(About::Row(key), error.to_string()),
            }
        }
        Ok(())
    }

    /// Calls `visit` with each row of a table like [`Checker::each`], for typed rows.
    pub fn each_row<K, T: Row>(
        &mut self,
        letter: u8,
        parse: impl Fn(&Bytes) -> Option<K>,
        visit: impl FnMut(&mut Checker<'a>, K, T),
    ) -> Result<()> {
        self.each(letter, parse, T::decode, visit)
    }

    /// Calls back like [`Checker::each_within`], with typed rows.
    pub fn each_row_within<K, T: Row>(
        &mut self,
        range: (Bytes, Bytes),
        parse: impl Fn(&Bytes) -> Option<K>,
        visit: impl FnMut(&mut Checker<'a>, K, T),
    ) -> Result<()> {
        self.each_within(range, parse, T::decode, visit)
    }

    pub fn finish(self) -> Report {
        (self.progress)(self.report.rows);
        self.report
    }
}
