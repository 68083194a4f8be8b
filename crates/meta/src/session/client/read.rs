//! Reads leased rows, or asks the master.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result};
use tokio::time::timeout;

use super::inner::{Forgotten, Inner};
use crate::erased::{Apply, keeping};
use crate::memo::Memo;
use crate::session::connection::Attachment;
use crate::session::link::{LostCall, MasterLink, call};
use crate::session::messages::{ReadReply, ReadRequest, Reply, SessionMethod};
use crate::shown::Rows;
use crate::view::Want;
use crate::{Context, Source, Stop, Verb, View};

/// Attempts to read from memory while rows are recalled.
const ATTEMPTS: usize = 3;
/// Share of a lease, per cent, beyond which a read may be waiting for a change that waits for the
/// lease of a dead session.
const SOON_PERCENT: u32 = 3;

/// The answer of the leased rows.
pub enum LeasedReply<T> {
    Reply(Result<T>),
    /// Rows are missing.
    Miss,
    /// The read needs a range of rows, and ranges are not leased.
    Range,
}

impl Inner {
    pub fn read_leased<V: Verb>(&self, caller: &Caller, verb: &V) -> LeasedReply<V::Reply> {
        match self.memo(caller, verb, false) {
            LeasedReply::Reply(memo) => LeasedReply::Reply(memo.map(|memo| memo.reply)),
            LeasedReply::Miss => LeasedReply::Miss,
            LeasedReply::Range => LeasedReply::Range,
        }
    }

    pub fn memo<V: Verb>(
        &self,
        caller: &Caller,
        verb: &V,
        trace: bool,
    ) -> LeasedReply<Memo<V::Reply>> {
        let mut reply = None;
        let ran = self.on_leased(caller, V::NAME, trace, &mut keeping(verb, &mut reply));
        match (ran, reply) {
            (LeasedReply::Reply(Ok((rows, version))), Some(reply)) => {
                LeasedReply::Reply(Ok(Memo::new(reply, rows, version)))
            }
            (LeasedReply::Reply(Err(error)), _) => LeasedReply::Reply(Err(error)),
            (LeasedReply::Range, _) => LeasedReply::Range,
            (LeasedReply::Miss | LeasedReply::Reply(Ok(_)), _) => LeasedReply::Miss,
        }
    }

    /// Reads leased rows; returns the rows that were read, if they are traced, and their version.
    fn on_leased(
        &self,
        caller: &Caller,
        name: &str,
        trace: bool,
        apply: Apply<'_>,
    ) -> LeasedReply<(Rows, u64)> {
        let batch = self.lease.settled();
        let context = Context { caller: caller.clone(), now: self.clock.now(), batch };
        for _ in 0..ATTEMPTS {
            // Taken before it is known which rows are read: a reply never counts as newer than it
            // is.
            let version = self.version();
            let attempt =
                |rows: &dyn Source| self.on_rows(rows, &context, name, trace, &mut *apply);
            match self.posts.over(&self.rows, attempt) {
                None => {}
                Some(LeasedReply::Reply(rows)) => {
                    return LeasedReply::Reply(rows.map(|rows| (rows, version)));
                }
                Some(LeasedReply::Miss) => return LeasedReply::Miss,
                Some(LeasedReply::Range) => return LeasedReply::Range,
            }
        }
        LeasedReply::Miss
    }

    /// Version of all rows that are known here. It grows with each change of them: if it is equal,
    /// no row was recalled or posted.
    fn version(&self) -> u64 {
        self.rows.mark().number() + self.posts.changes()
    }

    /// Reads from `rows`; `None` if rows were recalled meanwhile.
    fn on_rows(
        &self,
        rows: &dyn Source,
        context: &Context,
        name: &str,
        trace: bool,
        apply: Apply<'_>,
    ) -> Option<LeasedReply<Rows>> {
        let mark = self.rows.mark();
        let mut view = View::new(rows);
        if trace {
            view.trace();
        }
        let read = apply(&mut view, context);
        let changes = view.has_changes();
        // Until it is known that the rows were valid, no reply counts, nor any error.
        if !self.lease.is_valid() {
            return Some(LeasedReply::Miss);
        }
        if self.rows.mark() != mark {
            return None;
        }
        let reply = match read {
            Ok(_) if changes => Err(Error::Invalid(format!(
                "operation {name} changes rows, so it cannot be run as a read"
            ))),
            Ok(()) => Ok(view.take_trace()),
            Err(Stop::Fail(error)) => Err(error),
            Err(Stop::Miss) => {
                let wants = view.into_wants();
                let range = wants.iter().any(|want| matches!(want, Want::Range { .. }));
                return Some(if range { LeasedReply::Range } else { LeasedReply::Miss });
            }
        };
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        Some(LeasedReply::Reply(reply))
    }

    pub async fn read(
        &self,
        caller: &Caller,
        verb: u16,
        fields: Bytes,
        lease: bool,
    ) -> Result<Bytes> {
        if self.keeper.is_some() {
            self.posts.drained().await;
        }
        loop {
            // Taken first, so that rows from before the session was attached again are not kept.
            let mark = self.rows.mark();
            let Attachment { session, link, lease: time, .. } = self.connection.attached().await?;
            let caller = caller.to_relayed();
            let read = ReadRequest { session, caller, verb, fields: fields.clone(), lease };
            self.counters.calls.fetch_add(1, Ordering::Relaxed);
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            match self.ask(&*link, read, time).await {
                Ok(Reply::Done(ReadReply { reply, rows })) => {
                    for (key, row) in rows {
                        self.rows.offer(mark, key, row);
                    }
                    return reply;
                }
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => {
                    self.connection.lost(&link)
                }
            }
        }
    }

    /// Asks for rows and leases on them. If the leases take long, asks without them: then the reply
    /// is the state before changes that wait for other sessions.
    async fn ask(
        &self,
        link: &dyn MasterLink,
        read: ReadRequest,
        lease: Duration,
    ) -> Result<Reply<ReadReply>, LostCall> {
        let mut leased = pin!(call(link, SessionMethod::Read, &read));
        if !read.lease {
            return leased.await;
        }
        if let Ok(answer) = timeout(lease * SOON_PERCENT / 100, &mut leased).await {
            return answer;
        }
        let read = ReadRequest { lease: false, ..read.clone() };
        let unleased = tokio::select! {
            biased;
            answer = leased => return answer,
            answer = call(link, SessionMethod::Read, &read) => answer,
        };
        self.forgotten(Forgotten::Unleased);
        unleased
    }

    /// Returns whether the caller that `memo` was made for would get the same reply now.
    pub fn is_current<R>(&self, memo: &Memo<R>) -> bool {
        let (mark, version) = (self.rows.mark(), self.version());
        let same = |rows: &dyn Source| memo.is_current(version, |key| rows.get(key));
        let current =
            self.posts.over(&self.rows, same) && self.lease.is_valid() && self.rows.mark() == mark;
        if current {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        current
    }
}
