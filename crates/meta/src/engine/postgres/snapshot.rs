//! Reads rows: by a single statement, which is a snapshot in itself, or in a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::link::{DatabaseLink, Params, of_primary};
use super::pool::Pool;
use super::target::Target;
use super::writer::fence_of;
use crate::engine::Snapshot;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// Returns the rows of `keys`, in their order, and their batch.
pub fn read(pool: &Pool, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
    let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let params: &Params<'_> = &[(&wanted, Type::BYTEA_ARRAY)];
    let read = |link: &DatabaseLink| link.query(&pool.target.sql.read, params);
    let (link, rows) = pool.ask(|link| read(link).and_then(of_primary))?;
    pool.give(link);
    let batch = rows.first().and_then(|row| row.try_get::<_, i64>(2).ok());
    let batch = batch.and_then(|batch| u64::try_from(batch).ok());
    let batch = batch.ok_or_else(|| Error::corrupt(pool.target.shown(), "no fence", "a fence"))?;
    // A row without a key stands for no row.
    let some = rows.iter().filter(|row| !matches!(row.try_get::<_, Option<&[u8]>>(0), Ok(None)));
    Ok((batch, in_order(&pool.target, &wanted, some)?))
}

fn in_order<'a>(
    target: &Target,
    keys: &[&[u8]],
    rows: impl Iterator<Item = &'a Row>,
) -> Result<Vec<Option<Bytes>>> {
    let mut found = HashMap::with_capacity(keys.len());
    for row in rows {
        let (key, value) = pair(target, row)?;
        found.insert(key, Bytes::copy_from_slice(value));
    }
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

fn pair<'a>(target: &Target, row: &'a Row) -> Result<(&'a [u8], &'a [u8])> {
    match (row.try_get(0), row.try_get(1)) {
        (Ok(key), Ok(value)) => Ok((key, value)),
        _ => Err(Error::corrupt(target.shown(), "other columns", "key and value")),
    }
}

/// A read-only transaction.
pub struct ShownRows {
    pool: Arc<Pool>,
    batch: u64,
    /// Connection, until an error ends the transaction.
    link: Mutex<Option<DatabaseLink>>,
}

impl ShownRows {
    pub fn begin(pool: Arc<Pool>) -> Result<ShownRows> {
        let begin = |link: &DatabaseLink| link.pipeline(BEGIN, &pool.target.sql.fence);
        let (link, fence) = pool.ask(|link| begin(link).and_then(of_primary))?;
        let (fence, _) = fence_of(&pool.target, &fence).inspect_err(|_| pool.forget())?;
        Ok(ShownRows { pool, batch: fence.batch, link: Mutex::new(Some(link)) })
    }

    fn query(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>> {
        let mut link = self.link.lock();
        let target = &self.pool.target;
        let Some(open) = &*link else {
            return Err(Error::Unavailable(format!("{}: the snapshot is gone", target.shown())));
        };
        open.query(sql, params).map_err(|fault| {
            *link = None;
            self.pool.forget();
            fault.at(target.shown())
        })
    }
}

impl Snapshot for ShownRows {
    fn batch(&self) -> u64 {
        self.batch
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let target = &self.pool.target;
        let rows = self.query(&target.sql.get, &[(&wanted, Type::BYTEA_ARRAY)])?;
        in_order(target, &wanted, rows.iter())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        if start >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: &Params<'_> =
            &[(&start, Type::BYTEA), (&end, Type::BYTEA), (&limit, Type::INT8)];
        let target = &self.pool.target;
        let rows = self.query(&target.sql.scan, params)?;
        let copy = |row| {
            let (key, value) = pair(target, row)?;
            Ok((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
        };
        rows.iter().map(copy).collect()
    }
}

impl Drop for ShownRows {
    fn drop(&mut self) {
        if let Some(link) = self.link.get_mut().take() {
            link.post("COMMIT");
            self.pool.give(link);
        }
    }
}
