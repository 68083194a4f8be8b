//! Reads that run on the executor.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::op::{Haste, Op, Ran, RowLease, no_read, outcome, send};
use crate::erased::{AnyReply, AnyVerb};
use crate::shown::ShownToMount;
use crate::wire::ReceivedVerb;
use crate::{Context, Stop, View};

/// A reply, and the rows that it was made of, if they are leased.
pub type Leased = (Result<Bytes>, Vec<(Bytes, Option<Bytes>)>);

/// A read whose rows a session may keep, or that a mount may see.
pub struct LeasedRead {
    pub verb: Arc<dyn ReceivedVerb>,
    pub context: Context,
    pub session: SessionId,
    pub hasty: bool,
    pub to_mount: bool,
    pub is_leased: bool,
    pub reply: Option<Result<Bytes>>,
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    pub sender: oneshot::Sender<Leased>,
}

impl LeasedRead {
    fn run(&mut self, view: &mut View<'_>) -> Result<Bytes, Stop> {
        let read = self.verb.apply_any(view, &self.context);
        self.rows = view.take_trace();
        if !self.is_leased {
            self.rows.clear();
        }
        if !self.to_mount {
            return Ok(self.verb.encode_reply(&read?)?);
        }
        let mut shown = ShownToMount::new(view, &self.context);
        match read {
            Ok(mut reply) => {
                self.verb.show_any(&mut shown, &mut reply)?;
                shown.rows(&mut self.rows, false)?;
                Ok(self.verb.encode_reply(&reply)?)
            }
            Err(missing @ Stop::Fail(Error::NotFound(_))) => {
                shown.rows(&mut self.rows, false)?;
                Err(missing)
            }
            // A caller that is denied something gets none of its rows.
            Err(stop) => {
                self.rows.clear();
                Err(stop)
            }
        }
    }
}

impl Op for LeasedRead {
    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran {
        (self.context.now, self.context.batch) = (now, batch);
        view.trace();
        if self.verb.traits().leases_ranges {
            view.trace_ranges();
        }
        let (ran, reply) = outcome(self.run(view));
        if view.has_changes() {
            self.reply = Some(Err(no_read(self.verb.name())));
            return Ran::Failed;
        }
        self.reply = reply;
        ran
    }

    fn haste(&self) -> Haste {
        if self.hasty { Haste::Reader(Some(self.session)) } else { Haste::Never }
    }

    fn grant(&mut self) -> Option<RowLease> {
        let keys = self.rows.iter().map(|(key, _)| key.clone()).collect();
        self.is_leased.then_some(RowLease { session: self.session, keys })
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let rows = self.rows;
        send(self.sender, self.reply.map(|reply| (reply, rows)));
    }
}

/// A read that runs on the executor, since rows that it may see have not settled.
pub struct ExecutedRead {
    pub verb: Arc<dyn AnyVerb>,
    pub context: Context,
    pub reply: Option<Result<AnyReply>>,
    pub sender: oneshot::Sender<Result<AnyReply>>,
}

impl Op for ExecutedRead {
    fn haste(&self) -> Haste {
        Haste::Reader(None)
    }

    fn reads_settled(&self) -> bool {
        true
    }

    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran {
        (self.context.now, self.context.batch) = (now, batch);
        let (ran, reply) = outcome(self.verb.apply_any(view, &self.context));
        if view.has_changes() {
            self.reply = Some(Err(no_read(self.verb.name())));
            return Ran::Failed;
        }
        self.reply = reply;
        ran
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        send(self.sender, self.reply);
    }
}
