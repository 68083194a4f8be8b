//! Calls of sessions to a master.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, Result, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::Master;
use super::delegate::DelegateOp;
use super::leases::Event;
use super::once::{Once, OnceOutcome};
use super::op::{Job, Op};
use super::reads::{ExecutedRead, Leased, LeasedRead};
use crate::Context;
use crate::erased::{AnyReply, AnyVerb};
use crate::mounts::Use;
use crate::session::{Delegate, DelegateReply, Progress};
use crate::wire::ReceivedVerb;

/// A read for another machine.
pub struct Reading<'a> {
    pub master: &'a Master,
    pub caller: Caller,
    /// Session that gets leases on the rows that are read, if any.
    pub lease: Option<SessionId>,
    /// Set if that session runs its own operations again if they are lost.
    pub hasty: bool,
    /// Session of the mount that asks.
    pub mount: Option<SessionId>,
}

impl Reading<'_> {
    pub async fn run(self, verb: Arc<dyn ReceivedVerb>) -> Leased {
        if let Some(session) = self.mount
            && let Err(error) = verb.check_mount(session, Use::Read)
        {
            return (Err(error), Vec::new());
        }
        let to_mount = self.mount.is_some();
        let Reading { master, caller, lease, hasty, mount } = self;
        // The executor decides which rows a mount may see, whether the mount keeps them or not.
        let Some(session) = lease.or(mount) else {
            let reply = master.read_any(&caller, Arc::clone(&verb) as _).await;
            return (reply.and_then(|reply| verb.encode_reply(&reply)), Vec::new());
        };
        let op = |sender| LeasedRead {
            verb,
            context: Context { caller, now: Timestamp(0), batch: 0 },
            session,
            hasty,
            to_mount,
            is_leased: lease.is_some(),
            reply: None,
            rows: Vec::new(),
            sender,
        };
        master.submit(op).await.unwrap_or_else(|error| (Err(error), Vec::new()))
    }
}

impl Master {
    /// Passes an event of a session to the executor.
    pub fn tell(&self, event: Event) {
        self.owner.shared.inbox.push_event(event);
    }

    /// Returns a batch up to which all changes are durable and have settled: nobody reads older
    /// rows.
    pub fn settled_batch(&self) -> u64 {
        let shared = &self.owner.shared;
        let durable = shared.durable.batch();
        shared.unsettled.settled(durable)
    }

    /// Returns the progress of operations that were answered early: see [`Once::hasty`].
    pub fn progress(&self, session: SessionId) -> Progress {
        self.owner.shared.hasty.progress(session)
    }

    /// Waits until operations up to `serial` that were answered early are durable or have failed.
    ///
    /// # Errors
    /// `Unavailable` when the master ends before.
    pub async fn sync(&self, serial: u64) -> Result<()> {
        let shared = &self.owner.shared;
        tokio::select! {
            biased;
            () = shared.hasty.wait(serial) => Ok(()),
            () = shared.wait_failed() => Err(shared.gone()),
        }
    }

    /// Runs `verb` as [`Master::run`] does, unless it ran before in this slot. Returns the encoded
    /// reply, and the rows that it changed, if they are leased.
    pub async fn run_once(&self, once: Once<'_>, verb: Arc<dyn ReceivedVerb>) -> OnceOutcome {
        let runs = || self.check_runs(verb.traits().runs_when_full, verb.takes_reserve_of());
        if let Err(error) = once.check(&*verb).and_then(|()| runs()) {
            return OnceOutcome::failed(error);
        }
        let (sender, answer) = oneshot::channel();
        let ran = self.execute(Job::new(once.op(verb, sender)), answer).await;
        ran.unwrap_or_else(OnceOutcome::failed)
    }

    /// Accepts an operation that its session has run on its own: it runs after those accepted
    /// before. It does not wait for others to be answered, as some of them may wait for it. Nor is
    /// it refused for lack of space, since its session has reported it as done.
    ///
    /// # Errors
    /// `Unavailable` when the master has ended.
    pub fn take_posted(
        &self,
        once: Once<'_>,
        verb: Arc<dyn ReceivedVerb>,
    ) -> Result<oneshot::Receiver<OnceOutcome>> {
        if !verb.traits().posts {
            let text = format!("{}: not by a session by itself", verb.name());
            return Err(Error::Denied(text));
        }
        once.check(&*verb)?;
        let (sender, answer) = oneshot::channel();
        let job = Job { is_counted: false, ..Job::new(once.op(verb, sender)) };
        let shared = &self.owner.shared;
        shared.inbox.push(job).map_err(|_| shared.gone())?;
        Ok(answer)
    }

    /// Waits for the outcome of an operation that was accepted.
    pub async fn posted(&self, answer: oneshot::Receiver<OnceOutcome>) -> OnceOutcome {
        self.answered(answer).await.unwrap_or_else(OnceOutcome::failed)
    }

    /// Delegates a directory to a session, if nobody else has looked into it since it was made.
    /// `to` is the user of a mount, who must have the right to read and write there.
    ///
    /// # Errors
    /// `Conflict` or `TooLarge` if it cannot be delegated; `Unavailable` when the master has ended.
    pub async fn delegate(&self, delegate: Delegate, to: Option<Caller>) -> Result<DelegateReply> {
        let op = |sender| {
            let (entries, number) = (Vec::new(), 0);
            DelegateOp { delegate, to, entries, rows: None, number, sender }
        };
        self.submit(op).await?
    }

    /// Runs a read on the executor, since rows that it may see have not settled.
    pub(super) async fn read_executed(
        &self,
        caller: &Caller,
        verb: Arc<dyn AnyVerb>,
    ) -> Result<AnyReply> {
        let op = |sender| ExecutedRead {
            verb,
            context: Context { caller: caller.clone(), now: Timestamp(0), batch: 0 },
            reply: None,
            sender,
        };
        self.submit(op).await?
    }

    async fn submit<T, O: Op + 'static>(
        &self,
        op: impl FnOnce(oneshot::Sender<T>) -> O,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        self.execute(Job::new(Box::new(op(sender))), answer).await
    }
}
