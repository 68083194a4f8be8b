//! Threads that read rows from the engine for operations that lack them.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::inbox::FetchedJob;
use super::lacking::Lacking;
use super::pins::Pins;
use super::shared::MasterShared;
use crate::Want;
use crate::view::wanted_rows;

/// Runs a fetch thread.
pub async fn run(shared: Arc<MasterShared>) {
    while let Some(lacking) = shared.fetches.take(&shared.config).await {
        let fetched = shared.working.fetch(|| fetch(&shared, lacking));
        shared.inbox.push_fetched(fetched);
    }
}

/// Fetches rows for all operations; `pins.failed` is set for those whose fetch failed.
fn fetch(shared: &MasterShared, lacking: Vec<Lacking>) -> Vec<FetchedJob> {
    // Fetches the rows of all operations at once. If that fails, each operation is tried alone.
    let keys: Vec<Bytes> = lacking.iter().flat_map(|one| wanted_rows(&one.wants)).collect();
    let mut all = shared.engine.read(&keys).ok().map(|(batch, rows)| (batch, rows.into_iter()));
    let mut fetched = Vec::with_capacity(lacking.len());
    for Lacking { job, mut pins, wants } in lacking {
        let keys: Vec<Bytes> = wanted_rows(&wants).collect();
        let rows = match &mut all {
            Some((batch, rows)) => Ok((*batch, rows.take(keys.len()).collect())),
            None => shared.engine.read(&keys),
        };
        let filled = rows.and_then(|(batch, rows)| {
            offer(shared, &keys, &rows, batch);
            pins.keep(keys, rows);
            fetch_ranges(shared, &mut pins, &wants)
        });
        let failed = |error| Error::Unavailable(format!("reading metadata: {error}"));
        pins.failed = filled.err().map(failed);
        fetched.push(FetchedJob { job, pins });
    }
    fetched
}

/// Offers rows to the cache.
fn offer(shared: &MasterShared, keys: &[Bytes], rows: &[Option<Bytes>], batch: u64) {
    let published = shared.durable.batch();
    for (key, row) in keys.iter().zip(rows) {
        shared.cache.offer(key, row.as_ref(), batch, published);
    }
}

fn fetch_ranges(shared: &MasterShared, pins: &mut Pins, wants: &[Want]) -> Result<()> {
    if wants.iter().all(|want| matches!(want, Want::Row(_))) {
        return Ok(());
    }
    pins.fetch_ranges(wants, &*shared.engine.snapshot()?)
}
