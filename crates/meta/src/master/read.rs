//! Reads: on durable rows only, on any thread.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result};

use super::cache::CacheLookup;
use super::op::no_read;
use super::shared::MasterShared;
use super::source::{EngineRows, FetchedRows, PublishedRows};
use super::threads;
use crate::engine::Engine;
use crate::erased::{AnyReply, AnyVerb, Apply, keeping};
use crate::memo::Memo;
use crate::shown::Rows;
use crate::view::wanted_rows;
use crate::{Context, Stop, Verb, View, Want};

/// Attempts to read from memory while rows change.
const ATTEMPTS: usize = 3;
/// Attempts to read all rows at once, each with the rows that the last attempt lacked. Most
/// operations need two.
const ROUNDS: usize = 4;
/// Most rows of one read that are offered to the cache.
const OFFERED_ROWS: usize = 256;

/// Runs `verb` on cached rows; `None` if rows are missing.
pub fn cached<V: Verb>(
    shared: &MasterShared,
    caller: &Caller,
    verb: &V,
) -> Option<Result<V::Reply>> {
    let memo = on_cached(shared, caller, verb, false)?;
    Some(memo.map(|memo| memo.reply))
}

/// Runs `verb` like [`cached`].
pub fn cached_any(
    shared: &MasterShared,
    caller: &Caller,
    verb: &dyn AnyVerb,
) -> Option<Result<AnyReply>> {
    let mut reply = None;
    let apply: Apply<'_> = &mut |view, context| {
        reply = Some(verb.apply_any(view, context)?);
        Ok(())
    };
    match on_cached_rows(shared, caller, verb.name(), false, apply)? {
        Ok(_) => reply.map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// Returns whether a read would find the rows of `memo` now.
pub fn is_current<R>(shared: &MasterShared, memo: &Memo<R>) -> bool {
    let Some(stamp) = shared.unsettled.stamp() else { return false };
    let batch = shared.durable.batch();
    let now = |key: &Bytes| match shared.cache.get(key, batch) {
        CacheLookup::Row(row) => Some(row),
        CacheLookup::Newer | CacheLookup::Missing => None,
    };
    let current = shared.serves() && memo.is_current(batch, now) && shared.unsettled.holds(stamp);
    if current {
        shared.counters.reads_cached.add(1);
    }
    current
}

/// Runs `verb` like [`cached`]; with `trace`, also returns the rows that the reply was made of.
pub fn on_cached<V: Verb>(
    shared: &MasterShared,
    caller: &Caller,
    verb: &V,
    trace: bool,
) -> Option<Result<Memo<V::Reply>>> {
    let mut reply = None;
    let ran = on_cached_rows(shared, caller, V::NAME, trace, &mut keeping(verb, &mut reply))?;
    match ran {
        Ok((rows, batch)) => reply.map(|reply| Ok(Memo::new(reply, rows, batch))),
        Err(error) => Some(Err(error)),
    }
}

/// Returns the rows that were read, if they are traced, and their batch.
fn on_cached_rows(
    shared: &MasterShared,
    caller: &Caller,
    name: &'static str,
    trace: bool,
    run: Apply<'_>,
) -> Option<Result<(Rows, u64)>> {
    if let Err(error) = shared.check_serving() {
        return Some(Err(error));
    }
    let now = shared.now();
    let mut context = Context { caller: caller.clone(), now, batch: 0 };
    let stamp = shared.unsettled.stamp()?;
    for _ in 0..ATTEMPTS {
        context.batch = shared.durable.batch();
        let source =
            PublishedRows { cache: &shared.cache, batch: context.batch, newer: Cell::new(false) };
        let mut view = View::new(&source);
        if trace {
            view.trace();
        }
        let result = run(&mut view, &context).and_then(|()| only_read(&view, name));
        if !shared.unsettled.holds(stamp) {
            return None;
        }
        match result {
            Err(Stop::Miss) if source.newer.get() => std::hint::spin_loop(),
            Err(Stop::Miss) => return None,
            Err(Stop::Fail(error)) => return counted(shared, Err(error)),
            Ok(()) => return counted(shared, Ok((view.take_trace(), context.batch))),
        }
    }
    None
}

fn counted<T>(shared: &MasterShared, result: Result<T>) -> Option<Result<T>> {
    shared.counters.reads_cached.add(1);
    Some(result)
}

/// Runs `verb` on rows of the engine, and on cached rows of the same batch.
pub async fn stored(
    shared: &Arc<MasterShared>,
    caller: Caller,
    verb: &Arc<dyn AnyVerb>,
) -> Result<AnyReply> {
    shared.counters.reads_missed.add(1);
    let mut context = Context { caller, now: shared.now(), batch: shared.durable.batch() };
    let (mut keys, mut rows) = (Vec::new(), HashMap::new());
    for _ in 0..ROUNDS {
        let wants = match on_rows(shared, &context, &rows, &**verb) {
            Ok(result) => return result,
            Err(wants) => wants,
        };
        keys.extend(wanted_rows(&wants));
        if wants.iter().any(|want| matches!(want, Want::Range { .. })) {
            break;
        }
        // Reads all rows again, so that all are of one batch.
        let engine = Arc::clone(&shared.engine);
        let read = move || (engine.read(&keys), keys);
        let (found, asked) = threads::blocking(&shared.config.threads, read).await?;
        let (batch, found) = found?;
        keys = asked;
        // The engine may be ahead of what others see: else the next read could see less than this
        // one.
        shared.wait_published(batch).await?;
        for (key, row) in keys.iter().zip(&found).take(OFFERED_ROWS) {
            shared.cache.offer(key, row.as_ref(), batch, batch);
        }
        context.batch = batch;
        rows = keys.iter().cloned().zip(found).collect();
    }
    let (engine, verb) = (Arc::clone(&shared.engine), Arc::clone(verb));
    let read = move || on_snapshot(&*engine, context, &*verb);
    let SnapshotRead { batch, rows, result } =
        threads::blocking(&shared.config.threads, read).await??;
    shared.wait_published(batch).await?;
    for (key, row) in rows.iter().take(OFFERED_ROWS) {
        shared.cache.offer(key, row.as_ref(), batch, batch);
    }
    result
}

/// Runs `verb` on `rows` and on cached rows of their batch, or returns what else it needs.
fn on_rows(
    shared: &MasterShared,
    context: &Context,
    rows: &HashMap<Bytes, Option<Bytes>>,
    verb: &dyn AnyVerb,
) -> Result<Result<AnyReply>, Vec<Want>> {
    let source = FetchedRows { cache: &shared.cache, batch: context.batch, rows };
    let mut view = View::new(&source);
    match apply(verb, &mut view, context) {
        Ok(reply) => Ok(Ok(reply)),
        Err(Stop::Fail(error)) => Ok(Err(error)),
        Err(Stop::Miss) => Err(view.into_wants()),
    }
}

/// The result of an operation on a snapshot, and the rows it read one by one.
struct SnapshotRead {
    batch: u64,
    rows: Rows,
    result: Result<AnyReply>,
}

/// Runs `verb` on a snapshot, for as many reads as it needs. Blocks.
fn on_snapshot(
    engine: &dyn Engine,
    mut context: Context,
    verb: &dyn AnyVerb,
) -> Result<SnapshotRead> {
    let snapshot = engine.snapshot()?;
    let batch = snapshot.batch();
    context.batch = batch;
    let source = EngineRows::new(&*snapshot);
    let result = match apply(verb, &mut View::new(&source), &context) {
        Ok(reply) => Ok(reply),
        Err(Stop::Fail(error)) => Err(error),
        Err(Stop::Miss) => Err(source.failed.take().unwrap_or_else(|| {
            Error::Invalid(format!("operation {} stopped without missing a row", verb.name()))
        })),
    };
    Ok(SnapshotRead { batch, rows: source.rows.take(), result })
}

fn apply(verb: &dyn AnyVerb, view: &mut View<'_>, context: &Context) -> Result<AnyReply, Stop> {
    let reply = verb.apply_any(view, context)?;
    only_read(view, verb.name())?;
    Ok(reply)
}

fn only_read(view: &View<'_>, name: &str) -> Result<(), Stop> {
    if view.has_changes() { Err(no_read(name).into()) } else { Ok(()) }
}
