//! Reads: on durable rows only, on any thread.

use std::cell::Cell;

use cairn_auth::Caller;
use cairn_base::{Error, Result};

use super::shared::Shared;
use super::source::{Published, Stored};
use crate::{Context, Source, Stop, Verb, View};

/// Attempts to read from memory while rows change.
const ATTEMPTS: usize = 3;
/// Rows of one read that are offered to the cache.
const OFFERED_ROWS: usize = 256;

/// Runs `verb` on cached rows, or not at all.
pub fn cached<V: Verb>(shared: &Shared, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
    if shared.failure().is_some() {
        return Some(Err(shared.gone()));
    }
    let now = shared.now();
    let mut context = Context { caller: caller.clone(), now, batch: 0 };
    for _ in 0..ATTEMPTS {
        context.batch = shared.durable.batch();
        let source =
            Published { cache: &shared.cache, batch: context.batch, newer: Cell::new(false) };
        match apply(verb, &source, &context) {
            Err(Stop::Miss) if source.newer.get() => std::hint::spin_loop(),
            Err(Stop::Miss) => return None,
            Err(Stop::Fail(error)) => return counted(shared, Err(error)),
            Ok(reply) => return counted(shared, Ok(reply)),
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
    let result = match apply(verb, &source, &context) {
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

fn apply<V: Verb>(verb: &V, source: &dyn Source, context: &Context) -> Result<V::Reply, Stop> {
    let mut view = View::new(source);
    let reply = verb.apply(&mut view, context)?;
    if !view.into_changes()?.is_empty() {
        return Err(Error::Invalid(format!("{} changes rows: it is no read", V::NAME)).into());
    }
    Ok(reply)
}
