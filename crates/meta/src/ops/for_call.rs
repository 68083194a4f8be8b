//! Operations for calls of clients without sessions. A client that received no answer sends its
//! call again, perhaps after a crash, perhaps to another gateway. An operation that was executed
//! for the call is not executed again, and none is executed for a refused call.

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Ino, Party, UserId};
use serde::{Deserialize, Serialize};

use super::create::{Create, Mknod};
use super::link::Link;
use super::mkdir::Mkdir;
use super::namespace::{load, store};
use super::rename::Rename;
use super::rmdir::Rmdir;
use super::setattr::Setattr;
use super::symlink::Symlink;
use super::truncate::Truncate;
use super::unlink::Unlink;
use crate::needs::VerbNeeds;
use crate::rows::{Calls, DoneCall, Row};
use crate::{Context, Needs, Stop, Verb, View, erased, keys};

/// Least time for which an executed call is remembered, unless its client makes too many others,
/// nanoseconds.
pub const KEPT_NS: i64 = 180_000_000_000;

/// Time for which requests of users are kept, nanoseconds. A request is known for as long as it is
/// kept, so a clock that is set ahead by hours makes the store forget none.
pub const USER_KEPT_NS: i64 = 86_400_000_000_000;

/// Most rows that one [`ForgetCalls`] looks at.
const PAGE: usize = 500;

/// Prefix of the names of users, in the place of clients' addresses: it is IPv6's discard prefix
/// (RFC 6666), from which nothing is ever sent.
const USERS: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// Time before which calls of a client are forgotten.
fn since(client: &[u8; 16], context: &Context) -> i64 {
    let kept = if client.starts_with(&USERS) { USER_KEPT_NS } else { KEPT_NS };
    context.now.0.saturating_sub(kept)
}

/// A call of a client, and a step of its execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallId {
    /// Address of the client, as an IPv6 address; or a user, see [`CallId::of_user`].
    pub client: [u8; 16],
    /// Checksum of the whole call, including its number and the credentials.
    pub checksum: [u8; 16],
    /// Number of the step. Steps are executed in order.
    pub step: u8,
}

impl CallId {
    /// Names a request of a user, who may send it again from any address.
    pub fn of_user(user: UserId, checksum: [u8; 16]) -> CallId {
        let mut client = [0; 16];
        client[..8].copy_from_slice(&USERS);
        client[8..].copy_from_slice(&user.0.to_be_bytes());
        CallId { client, checksum, step: 0 }
    }

    /// Returns the time since which such an executed call is certainly remembered.
    pub(super) fn since(&self, context: &Context) -> i64 {
        if self.client.starts_with(&USERS) { i64::MIN } else { since(&self.client, context) }
    }

    /// Returns the key of the row that has the call if it was executed.
    pub(super) fn key(&self) -> Bytes {
        let [first, second, ..] = self.checksum;
        keys::calls(self.client, u16::from_be_bytes([first, second]) % Calls::SETS)
    }

    /// Finds the call in its row.
    ///
    /// # Errors
    /// `Corrupt` if the row was damaged, so that it is unknown whether the call was in it.
    pub(super) fn find<'a>(
        &self,
        calls: &'a Calls,
        context: &Context,
    ) -> Result<Option<&'a DoneCall>, Error> {
        let since = self.since(context);
        let of = |checksum| {
            calls.done.iter().find(move |done| done.checksum == checksum && done.time.0 >= since)
        };
        match of(Calls::DAMAGED) {
            Some(_) => Err(Error::corrupt("row of calls", "a damaged row", "what was done")),
            None => Ok(of(self.checksum)),
        }
    }
}

/// A verb that can be run for a call.
pub trait Callable: Verb {
    /// Returns the inode that the call made or changed; `None` if the call is not finished.
    fn done(&self, reply: &Self::Reply) -> Option<Ino>;
}

macro_rules! callable {
    ($($verb:ident, $done:expr;)*) => {
        $(impl Callable for $verb {
            fn done(&self, reply: &Self::Reply) -> Option<Ino> {
                let done: fn(&Self, &Self::Reply) -> Option<Ino> = $done;
                done(self, reply)
            }
        })*
    };
}

callable! {
    Create, |_, reply| Some(reply.0);
    Mknod, |_, reply| Some(reply.0);
    Mkdir, |_, reply| Some(reply.0);
    Symlink, |_, reply| Some(reply.0);
    Link, |verb, _| Some(verb.ino);
    Unlink, |verb, _| Some(verb.parent);
    Rmdir, |verb, _| Some(verb.parent);
    Rename, |verb, _| Some(verb.target_parent);
    Setattr, |verb, _| Some(verb.ino);
    Truncate, |verb, reply| (!reply.more).then_some(verb.ino);
}

/// The outcome of a verb that was run for a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Once<R> {
    Done(R),
    /// It was executed before, or a later step was. The inode is that of [`Callable::done`].
    Before(Ino),
}

/// Runs a verb for a call, unless that step of the call, or a later one, was executed before.
/// `PreconditionFailed` if the call was refused: [`SettleCall`] has the status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForCall<V> {
    pub call: CallId,
    pub verb: V,
}

impl<V: Callable> VerbNeeds for ForCall<V> {
    const NEEDS: Needs = V::NEEDS.or_done_before();
}

impl<V: Callable> Verb for ForCall<V> {
    type Reply = Once<V::Reply>;
    const NAME: &'static str = V::NAME;
    const RUNS_WHEN_FULL: bool = V::RUNS_WHEN_FULL;
    const LEASES_CHANGES: bool = V::LEASES_CHANGES;

    fn changes(&self) -> Vec<Bytes> {
        self.verb.changes()
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let key = self.call.key();
        let calls = load::<Calls>(view, &key);
        if let Err(Stop::Miss) = calls {
            // So that all missing rows are fetched together.
            let _ = erased::apply(&self.verb, view, context);
            return Err(Stop::Miss);
        }
        let mut calls = calls?.unwrap_or_default();
        let before = self.call.find(&calls, context)?.copied();
        if let Some(done) = before {
            if done.status != 0 {
                return Err(Error::PreconditionFailed("the call was refused before".into()).into());
            }
            if done.step >= self.call.step {
                return Ok(Once::Before(Ino(done.result)));
            }
        }
        let reply = erased::apply(&self.verb, view, context)?;
        if let Some(ino) = self.verb.done(&reply) {
            let CallId { checksum, step, .. } = self.call;
            // The inode that was made stays the subject of the call.
            let result = before.map_or(ino.0, |before| before.result);
            let done = DoneCall { checksum, time: context.now, step, result, status: 0 };
            calls.add(done, self.call.since(context), Calls::WAYS);
            if !is_planted(Bug::CallsForgotten) {
                store(view, key, &calls);
            }
        }
        Ok(Once::Done(reply))
    }
}

/// Finds out whether a step of a call, or a later one, was executed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindCall {
    pub call: CallId,
}

impl Verb for FindCall {
    type Reply = bool;
    const NAME: &'static str = "find_call";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        let calls = load::<Calls>(view, &self.call.key())?.unwrap_or_default();
        let found = self.call.find(&calls, context)?;
        Ok(found.is_some_and(|done| done.status == 0 && done.step >= self.call.step))
    }
}

/// Records the outcome of a call for which no verb was run, before its client receives it: the same
/// call may be on its way to another gateway, and must not be executed after it was refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettleCall {
    /// The call, with the step before which it was refused: all steps before were executed.
    pub call: CallId,
    /// Status with which it is refused; 0 if there is nothing left to do.
    pub status: u32,
    /// Inode from which the reply is made, if there is nothing left to do.
    pub found: Ino,
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SettleOutcome {
    /// The outcome was recorded.
    Kept,
    /// It was refused with this status before.
    Refused(u32),
    /// More was executed for it meanwhile: nothing is recorded.
    Done,
}

impl Verb for SettleCall {
    type Reply = SettleOutcome;
    const NAME: &'static str = "settle_call";
    // Refusals for lack of space have to be recorded, too.
    const RUNS_WHEN_FULL: bool = true;

    fn takes_reserve_of(&self) -> Option<Party> {
        Some(Party::at(self.call.client.into()))
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<SettleOutcome, Stop> {
        let key = self.call.key();
        let mut calls = load::<Calls>(view, &key)?.unwrap_or_default();
        let before = self.call.find(&calls, context)?.copied();
        match before {
            Some(done) if done.status != 0 => return Ok(SettleOutcome::Refused(done.status)),
            Some(done) if done.step >= self.call.step => return Ok(SettleOutcome::Done),
            _ => {}
        }
        let SettleCall { call: CallId { checksum, .. }, status, found } = *self;
        let step = match (status, before) {
            (0, _) => u8::MAX,
            (_, Some(done)) => done.step,
            (_, None) => 0,
        };
        let result = before.map_or(found.0, |before| before.result);
        let done = DoneCall { checksum, time: context.now, step, result, status };
        calls.add(done, self.call.since(context), Calls::WAYS);
        if !is_planted(Bug::RefusalsForgotten) {
            store(view, key, &calls);
        }
        Ok(SettleOutcome::Kept)
    }
}

/// Forgets calls of clients that have been inactive, one page of rows at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForgetCalls {
    /// Reply of the step before.
    pub after: Option<Bytes>,
}

impl Verb for ForgetCalls {
    /// Key to go on after; `None` at the end.
    type Reply = Option<Bytes>;
    const NAME: &'static str = "forget_calls";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let (start, end) = keys::calls_after(self.after.as_ref());
        let rows = view.scan(&start, &end, PAGE)?;
        let next = (rows.len() == PAGE).then(|| rows.last().map(|(key, _)| key.clone())).flatten();
        for (key, row) in rows {
            let client = keys::client_of_calls(&key);
            let since = client.map(|client| since(&client, context));
            let is_kept = |done: &DoneCall| since.is_some_and(|since| done.time.0 >= since);
            match Calls::decode(&row) {
                Ok(calls) if calls.done.iter().any(is_kept) => {}
                // For as long as any of its calls may be repeated. Requests of users are not
                // refused for a day: at worst something is appended twice.
                Err(error) if client.is_some_and(|client| !client.starts_with(&USERS)) => {
                    tracing::error!(%error, "a row of calls is damaged: some will fail");
                    store(view, key, &Calls::damaged(context.now));
                }
                _ => view.delete(key),
            }
        }
        Ok(next)
    }
}
