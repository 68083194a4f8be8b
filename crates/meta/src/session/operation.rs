//! An operation that is sent, perhaps more than once.

use bytes::Bytes;
use cairn_auth::{Caller, RelayedCaller};
use cairn_base::{Ino, Result, SessionId, Timestamp};

use super::link::{LostCall, MasterLink, call};
use super::messages::{
    Change, Execute, ExecuteReply, PostedOperation, ReadReply, Reply, Run, SessionMethod,
};
use super::slots::SlotGuard;
use super::step::Step;
use crate::{WireVerb, wire};

/// An operation that is sent, perhaps more than once.
pub struct Operation {
    caller: RelayedCaller,
    verb: u16,
    fields: Bytes,
    /// Rows that it is known to change.
    changes: Vec<Bytes>,
    /// Set if it is answered only when it is durable, even in a session that executes.
    is_durable: bool,
    step: Step,
}

impl Operation {
    pub fn new<V: WireVerb>(caller: &Caller, verb: &V) -> Result<Operation> {
        let (fields, caller) = (wire::encode(verb)?, caller.to_relayed());
        let changes = verb.changes();
        let (verb, step) = (V::NUMBER, Step::default());
        Ok(Operation { caller, verb, fields, changes, is_durable: false, step })
    }

    /// Makes an operation like [`Operation::new`] that is answered when it is durable.
    pub fn durable<V: WireVerb>(caller: &Caller, verb: &V) -> Result<Operation> {
        Ok(Operation { is_durable: true, ..Operation::new(caller, verb)? })
    }

    pub fn changes(&self) -> &[Bytes] {
        &self.changes
    }

    pub fn step(&self) -> &Step {
        &self.step
    }

    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Returns the number of its verb.
    pub fn verb(&self) -> u16 {
        self.verb
    }

    /// Returns its approximate size, bytes.
    pub fn weight(&self) -> usize {
        self.fields.len() + self.changes.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn name(&self) -> &'static str {
        wire::name(self.verb)
    }

    pub fn in_slot(&self, session: SessionId, slot: &SlotGuard) -> Run {
        Run {
            session,
            slot: slot.number(),
            sequence: slot.sequence(),
            caller: self.caller.clone(),
            verb: self.verb,
            fields: self.fields.clone(),
        }
    }

    /// Runs it at the master, and waits until it is durable.
    pub async fn call(
        &self,
        link: &dyn MasterLink,
        run: Run,
    ) -> Result<Reply<ReadReply>, LostCall> {
        if !self.changes.is_empty() {
            let change = Change { run, released: self.changes.clone() };
            return call(link, SessionMethod::Change, &change).await;
        }
        let reply = call::<_, Bytes>(link, SessionMethod::Run, &run).await?;
        Ok(reply.map(|reply| ReadReply { reply: Ok(reply), rows: Vec::new() }))
    }

    /// Runs it at the master.
    pub async fn execute(
        &self,
        link: &dyn MasterLink,
        run: Run,
        ino: Option<Ino>,
    ) -> Result<Reply<ExecuteReply>, LostCall> {
        call(link, SessionMethod::Execute, &self.to_execute(run, ino)).await
    }

    fn to_execute(&self, run: Run, ino: Option<Ino>) -> Execute {
        Execute { change: Change { run, released: self.changes.clone() }, ino }
    }

    pub fn to_post(&self, run: Run, ino: Option<Ino>, time: Timestamp) -> PostedOperation {
        PostedOperation { execute: self.to_execute(run, ino), time }
    }
}
