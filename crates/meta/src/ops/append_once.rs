//! Appends for a request that its user may send again: perhaps after a crash, perhaps to another
//! gateway. Bytes that were appended for it are not appended again.

use bytes::Bytes;
use cairn_base::Error;
use serde::{Deserialize, Serialize};

use super::append::{Append, AppendReply};
use super::for_call::CallId;
use super::namespace::{load, store};
use crate::rows::{Calls, DoneCall};
use crate::{Context, Stop, Verb, View, erased};

/// Shortest time for which a request is known, however many others its user sends, nanoseconds.
pub const KEPT_ALWAYS_NS: i64 = 60_000_000_000;

/// Appends, unless that was done before for the same request of its user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppendOnce {
    pub call: CallId,
    pub append: Append,
}

/// The outcome of a request to append.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AppendedOnce {
    Done(AppendReply),
    /// It was done before; the bytes are at this offset.
    Before(u64),
}

impl Verb for AppendOnce {
    type Reply = AppendedOnce;
    const NAME: &'static str = "append_once";

    fn changes(&self) -> Vec<Bytes> {
        self.append.changes()
    }

    /// Appends like [`Append`].
    ///
    /// # Errors
    /// `Unavailable` if the store would forget a recent request by it.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<AppendedOnce, Stop> {
        let key = self.call.key();
        let calls = load::<Calls>(view, &key);
        if let Err(Stop::Miss) = calls {
            // So that all rows that are missing are fetched together.
            let _ = erased::apply(&self.append, view, context);
            return Err(Stop::Miss);
        }
        let mut calls = calls?.unwrap_or_default();
        if let Some(done) = self.call.find(&calls, context)? {
            return Ok(AppendedOnce::Before(done.result));
        }
        // No request has a later time, unless the clock was set back.
        let youngest = context.now.0.saturating_sub(KEPT_ALWAYS_NS) + 1..=context.now.0;
        let is_full = calls.done.len() >= Calls::USER_WAYS;
        if is_full && calls.done.first().is_some_and(|done| youngest.contains(&done.time.0)) {
            let what =
                "too many requests with an Idempotency-Key within a minute: send larger ones";
            return Err(Error::Unavailable(what.into()).into());
        }
        let appended = erased::apply(&self.append, view, context)?;
        let CallId { checksum, step, .. } = self.call;
        let done =
            DoneCall { checksum, time: context.now, step, result: appended.offset, status: 0 };
        calls.add(done, self.call.since(context), Calls::USER_WAYS);
        store(view, key, &calls);
        Ok(AppendedOnce::Done(appended))
    }
}
