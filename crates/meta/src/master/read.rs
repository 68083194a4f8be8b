//! Reads: on durable rows only, on any thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result};

use super::cache::Cached;
use super::shared::Shared;
use super::source::{Published, Stored};
use crate::{Context, Stop, Verb, View};

/// Attempts to read from memory while rows change.
const ATTEMPTS: usize = 3;
/// Rows of one read that are offered to the cache.
const OFFERED_ROWS: usize = 256;

/// A reply that is worth keeping, and the rows it was made of.
pub struct Memo<R> {
    pub reply: R,
    rows: Vec<(Bytes, Option<Bytes>)>,
    /// The rows are the same as of this batch.
    batch: AtomicU64,
}

impl<R> Memo<R> {
    pub fn map<S>(self, change: impl FnOnce(R) -> S) -> Memo<S> {
        Memo { reply: change(self.reply), rows: self.rows, batch: self.batch }
    }

    /// Bytes of memory that the rows take.
    pub fn row_bytes(&self) -> usize {
        let bytes = |(key, row): &(Bytes, Option<Bytes>)| {
            key.len() + row.as_ref().map_or(0, Bytes::len) + 2 * size_of::<Bytes>()
        };
        self.rows.iter().map(bytes).sum()
    }

    /// Whether the same caller would get the same reply now. The rows are the same if they are
    /// at the same place in memory, which the memo keeps from being used again.
    pub(super) fn is_current(&self, shared: &Shared) -> bool {
        let batch = shared.durable.batch();
        let same = |(key, row): &(Bytes, Option<Bytes>)| match (shared.cache.get(key, batch), row) {
            (Cached::Row(Some(now)), Some(row)) => now.as_ptr() == row.as_ptr(),
            (Cached::Row(None), None) => true,
            _ => false,
        };
        let stamp = shared.unsettled.stamp();
        if shared.failure().is_some() || stamp.is_none() {
            return false;
        }
        if self.batch.load(Ordering::Relaxed) != batch {
            if !self.rows.iter().all(same) {
                return false;
            }
            self.batch.store(batch, Ordering::Relaxed);
        }
        shared.counters.reads_cached.add(1);
        stamp.is_some_and(|stamp| shared.unsettled.holds(stamp))
    }
}

/// Runs `verb` on cached rows, or not at all.
pub fn cached<V: Verb>(shared: &Shared, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
    let memo = on_cached(shared, caller, verb, false)?;
    Some(memo.map(|memo| memo.reply))
}

/// As [`cached`], and with `trace` also what the reply was made of.
pub fn on_cached<V: Verb>(
    shared: &Shared,
    caller: &Caller,
    verb: &V,
    trace: bool,
) -> Option<Result<Memo<V::Reply>>> {
    if shared.failure().is_some() {
        return Some(Err(shared.gone()));
    }
    let now = shared.now();
    let mut context = Context { caller: caller.clone(), now, batch: 0 };
    let stamp = shared.unsettled.stamp()?;
    for _ in 0..ATTEMPTS {
        context.batch = shared.durable.batch();
        let source =
            Published { cache: &shared.cache, batch: context.batch, newer: Cell::new(false) };
        let mut view = View::new(&source);
        if trace {
            view.trace();
        }
        let result = apply(verb, &mut view, &context);
        if !shared.unsettled.holds(stamp) {
            return None;
        }
        match result {
            Err(Stop::Miss) if source.newer.get() => std::hint::spin_loop(),
            Err(Stop::Miss) => return None,
            Err(Stop::Fail(error)) => return counted(shared, Err(error)),
            Ok(reply) => {
                let (rows, batch) = (view.take_trace(), AtomicU64::new(context.batch));
                return counted(shared, Ok(Memo { reply, rows, batch }));
            }
        }
    }
    None
}

fn counted<T>(shared: &Shared, result: Result<T>) -> Option<Result<T>> {
    shared.counters.reads_cached.add(1);
    Some(result)
}

/// Runs `verb` on a snapshot of the engine. Blocks.
pub fn stored<V: Verb>(shared: &Shared, caller: Caller, verb: &V) -> Result<V::Reply> {
    shared.counters.reads_missed.add(1);
    let snapshot = shared.engine.snapshot()?;
    let batch = snapshot.batch();
    let context = Context { caller, now: shared.now(), batch };
    let source = Stored::new(&*snapshot);
    let result = match apply(verb, &mut View::new(&source), &context) {
        Ok(reply) => Ok(reply),
        Err(Stop::Fail(error)) => Err(error),
        Err(Stop::Miss) => Err(source
            .failed
            .take()
            .unwrap_or_else(|| Error::Invalid(format!("{} stops for want of nothing", V::NAME)))),
    };
    // The engine may be ahead of what others see: else the next read could see less than this.
    shared.wait_published(batch)?;
    for (key, row) in source.rows.take().iter().take(OFFERED_ROWS) {
        shared.cache.offer(key, row.as_ref(), batch, batch);
    }
    result
}

fn apply<V: Verb>(verb: &V, view: &mut View<'_>, context: &Context) -> Result<V::Reply, Stop> {
    let reply = verb.apply(view, context)?;
    if view.has_changes() {
        return Err(Error::Invalid(format!("{} changes rows: it is no read", V::NAME)).into());
    }
    Ok(reply)
}
