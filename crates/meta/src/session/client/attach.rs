//! Keeps a session attached: finds a master, renews the lease, and gives up recalled rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Result, SessionId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::contact::Contact;
use super::inner::{Forgotten, Inner};
use super::replay::unserved;
use crate::session::connection::{Attacher, Attachment};
use crate::session::link::{LostCall, MasterLink, call};
use crate::session::messages::{
    Acknowledge, Attach, AttachReply, Bind, Bound, Recall, Renew, RenewReply, Reply, SessionMethod,
    Succeed,
};
use crate::{keys, wire};

/// Pause between two attempts to find a master.
const BACKOFF: Duration = Duration::from_millis(100);

impl Inner {
    /// Keeps the session attached until it is closed.
    pub async fn keep_attached(&self, mut attacher: Attacher) {
        let mut contact = Contact::default();
        loop {
            tokio::select! {
                biased;
                () = self.connection.closed() => return,
                () = self.attach_and_stay(&mut attacher, &mut contact) => {}
            }
        }
    }

    /// Attaches, and stays attached for as long as that works.
    async fn attach_and_stay(&self, attacher: &mut Attacher, contact: &mut Contact) {
        match self.attach().await {
            Ok((attachment, recalls)) => {
                contact.found(self.clock.monotonic(), &self.dialer.master());
                attacher.attach(&self.connection, attachment.clone());
                self.stay(&attachment, recalls).await;
                self.connection.lost(&attachment.link);
                let why = "the connection was lost";
                contact.lost(self.clock.monotonic(), &self.dialer.master(), why);
            }
            Err(error) => {
                let why = error.to_string();
                contact.lost(self.clock.monotonic(), &self.dialer.master(), &why);
                attacher.fail(&self.connection, error);
                sleep(BACKOFF).await;
            }
        }
    }

    /// Attaches. Returns the attachment, and the channel of the master's recalls.
    async fn attach(&self) -> Result<(Attachment, UnboundedReceiver<Bytes>)> {
        let (link, recalls) = self.dialer.dial().await?;
        self.posts.begin();
        let generation = self.dialer.generation();
        if let Some(lease) = self.attach_holding(&*link, generation).await? {
            self.attached_to(generation);
            let attachment = Attachment { session: self.session(), link, lease, number: 0 };
            return Ok((attachment, recalls));
        }
        // The master assumes that nothing is held.
        self.forget_all();
        let former = self.session();
        let mut session = former;
        if self.is_of_other_metadata(generation) {
            // They may not know the places of this session's blocks.
            tracing::warn!(generation, "the metadata began anew: a new session begins");
            session = SessionId::random(&*self.rng);
        }
        loop {
            let sent = self.clock.monotonic();
            let attach = Attach { session };
            let method = match self.keeper {
                None => SessionMethod::Attach,
                Some(_) => SessionMethod::AttachToReplay,
            };
            match call::<_, AttachReply>(&*link, method, &attach).await {
                Ok(Reply::Done(attached)) => {
                    // Not before the metadata know it: blocks of an unknown session stay
                    // indefinitely.
                    if session != former {
                        self.start_over(session);
                    }
                    self.attached_to(generation);
                    let lease = Duration::from_millis(attached.lease_ms);
                    self.lease.extend(sent, lease, attached.batch);
                    let number = match &self.keeper {
                        None => 0,
                        Some(keeper) => {
                            self.replay(keeper, &*link, session, session == former).await?
                        }
                    };
                    return Ok((Attachment { session, link, lease, number }, recalls));
                }
                Ok(Reply::Failed(error @ Error::Unavailable(_))) => {
                    tracing::warn!(%error, "a new session begins");
                    session = SessionId::random(&*self.rng);
                }
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached) => {
                    return Err(unserved("the master did not attach the session"));
                }
                Ok(Reply::NotServing(why)) => return Err(unserved(&why)),
                Err(LostCall(why)) => return Err(unserved(&why)),
            }
        }
    }

    /// Attaches with all rows that are leased, and returns for how long they stay leased; `None` if
    /// they do not, or if there are none. No row is forgotten before the master has answered: until
    /// that master is open it shows nobody anything newer, and then it recalls all rows. A master
    /// that is open, or of an earlier version, refuses, and goes on counting the leases that it has
    /// given.
    ///
    /// No other master can have ended the session and then changed rows that it holds: a master
    /// that ends the session waits for a whole lease after its last answer, and this client counts
    /// less, starting before it asked. So the lease must be valid up to here without a gap. It was
    /// extended by the master that answered last, and each later master has found the session
    /// alive: docs/decisions/0005-sessions.md.
    async fn attach_holding(
        &self,
        link: &dyn MasterLink,
        generation: u64,
    ) -> Result<Option<Duration>> {
        // Operations that are kept beside the rows are sent again first, and others may see their
        // changes.
        if self.keeper.is_some() || !self.lease.is_valid() {
            return Ok(None);
        }
        // The next master does not wait for a bound session.
        if self.lease.bound_to().is_some() {
            return Ok(None);
        }
        // Rows of former metadata are not rows of these.
        if self.is_of_other_metadata(generation) {
            return Ok(None);
        }
        let attach = Attach { session: self.session() };
        let sent = self.clock.monotonic();
        match call::<_, AttachReply>(link, SessionMethod::AttachHolding, &attach).await {
            Ok(Reply::Done(attached)) if self.lease.is_valid() => {
                let lease = Duration::from_millis(attached.lease_ms);
                self.lease.extend(sent, lease, attached.batch);
                Ok(Some(lease))
            }
            Ok(Reply::Done(_) | Reply::Failed(_)) => Ok(None),
            Ok(Reply::NotAttached) => Err(unserved("the master did not attach the session")),
            Ok(Reply::NotServing(why)) => Err(unserved(&why)),
            Err(LostCall(why)) => Err(unserved(&why)),
        }
    }

    /// Renews, and handles recalls, until the connection fails.
    async fn stay(&self, attachment: &Attachment, mut recalls: UnboundedReceiver<Bytes>) {
        let Attachment { link, lease, .. } = attachment;
        let lease = *lease;
        let mut renewals = interval(lease / 3);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let renew = async {
            loop {
                renewals.tick().await;
                if !self.renew(link, lease).await {
                    return;
                }
            }
        };
        let take = async {
            while let Some(recall) = recalls.recv().await {
                if !self.recalled(link, recall, &mut recalls).await {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.connection.detached(link) => {}
            () = take => {}
            () = renew => {}
            () = self.succeed_and_stay_bound(&**link) => {}
        }
    }

    /// Ends the sessions of former processes of this node, if there can be any.
    async fn succeed(&self, link: &dyn MasterLink) -> Result<(), LostCall> {
        if !self.succeeds.load(Ordering::SeqCst) {
            return Ok(());
        }
        let succeed = Succeed { session: self.session() };
        match call::<_, ()>(link, SessionMethod::Succeed, &succeed).await? {
            Reply::Done(()) | Reply::Failed(_) => self.succeeds.store(false, Ordering::SeqCst),
            Reply::NotAttached | Reply::NotServing(_) => {}
        }
        Ok(())
    }

    async fn succeed_and_stay_bound(&self, link: &dyn MasterLink) {
        if self.succeed(link).await.is_ok() {
            self.stay_bound(link).await;
        }
    }

    /// Binds the session to the master in this process whenever that master serves, so that the
    /// next master need not wait for a process that died with its master. Ends when the connection
    /// fails.
    async fn stay_bound(&self, link: &dyn MasterLink) {
        // A bound session stays bound until it knows that a later master has attached it: the
        // master to which it is bound may have noted that.
        let (mut ask, mut known) = (self.lease.bound_to(), None);
        loop {
            let epoch = match (ask.take(), &self.own) {
                (Some(epoch), _) => epoch,
                (None, None) => std::future::pending().await,
                (None, Some(own)) => {
                    let serving = own.next(known).await;
                    let epoch = serving.epoch();
                    self.lease.bind(Some(serving));
                    epoch
                }
            };
            known = Some(epoch);
            let bind = Bind { session: self.session(), epoch };
            match call::<_, Bound>(link, SessionMethod::Bind, &bind).await {
                Ok(Reply::Done(bound)) if bound.epoch == epoch => {}
                Ok(Reply::Done(bound)) if bound.epoch > epoch => self.lease.bind(None),
                // A master of an earlier version, which is not in this process.
                Ok(Reply::Failed(Error::NotImplemented(_))) => self.lease.bind(None),
                _ => return,
            }
        }
    }

    async fn renew(&self, link: &Arc<dyn MasterLink>, lease: Duration) -> bool {
        let settled = self.lease.settled();
        let reads_from = self.reads_from.lock().as_ref().map_or(0, |from| from(settled));
        let session = self.session();
        let sent = self.clock.monotonic();
        match call::<_, RenewReply>(&**link, SessionMethod::Renew, &Renew { session, reads_from })
            .await
        {
            Ok(Reply::Done(RenewReply { settled })) => {
                self.lease.extend(sent, lease, settled);
                true
            }
            _ => false,
        }
    }

    /// Forgets recalled rows, and acknowledges that. Everything that has arrived is handled at
    /// once.
    async fn recalled(
        &self,
        link: &Arc<dyn MasterLink>,
        first: Bytes,
        further: &mut UnboundedReceiver<Bytes>,
    ) -> bool {
        let (mut next, mut number) = (Some(first), 0);
        while let Some(message) = next {
            let Ok(recall) = wire::decode::<Recall>(&message) else { return false };
            self.counters.recalls.fetch_add(recall.keys.len() as u64, Ordering::Relaxed);
            if recall.keys.contains(&keys::all_rows()) {
                self.rows.clear();
                self.forgotten(Forgotten::All);
            }
            self.rows.recall(&recall.keys);
            for (directory, of) in recall.keys.iter().filter_map(|key| keys::delegation_parts(key))
            {
                self.posts.recalled(directory, of, self.clock.monotonic());
            }
            self.forgotten(Forgotten::Rows(&recall.keys));
            number = recall.number;
            next = further.try_recv().ok();
        }
        let session = self.session();
        let acknowledge = Acknowledge { session, number };
        let reply = call::<_, ()>(&**link, SessionMethod::Acknowledge, &acknowledge).await;
        matches!(reply, Ok(Reply::Done(())))
    }
}
