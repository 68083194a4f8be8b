//! Bodies of users with a limit of bytes per second: pieces wait until the limit allows them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cairn_auth::{Caller, Principal};
use cairn_fs::{Account, CountedBody, Fs};
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Returns the account of a caller with limits, after taking one request from it.
///
/// # Errors
/// The time until the caller may send a request again.
pub async fn account_of(
    fs: &Fs,
    caller: &Caller,
) -> Result<Option<Arc<Account>>, std::time::Duration> {
    let Principal::User(user) = caller.principal() else { return Ok(None) };
    let account = fs.account(user).await;
    if let Some(account) = &account {
        account.take_request()?;
    }
    Ok(account)
}

/// Returns the whole seconds after which a refused client should come back.
pub fn seconds(wait: std::time::Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// The account that the bytes of one body are taken from. A reply carries it to where its body is
/// sent.
#[derive(Clone)]
pub struct PacingAccount {
    account: Arc<Account>,
}

/// A body that is slowed down to its limit.
pub struct Pacing {
    account: Arc<Account>,
    /// The count of this body, since its first bytes were asked for.
    counted: Option<CountedBody>,
    pause: Option<Pin<Box<Sleep>>>,
    /// True if the pause for the next bytes is over, or there was none.
    is_due: bool,
    /// The part of a frame that may not be sent yet.
    rest: Bytes,
}

impl PacingAccount {
    pub fn new(account: Arc<Account>) -> PacingAccount {
        PacingAccount { account }
    }

    pub fn begin(self) -> Pacing {
        let (counted, pause) = (None, None);
        Pacing { account: self.account, counted, pause, is_due: false, rest: Bytes::new() }
    }
}

impl Pacing {
    /// Returns the next frame of a body whose frames come from `next`, or a part of a frame, once
    /// it is due.
    pub fn poll_frame<E>(
        &mut self,
        context: &mut Context<'_>,
        next: impl FnOnce(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        ready!(self.poll_due(context));
        if self.rest.is_empty() {
            let frame = match ready!(next(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let most = self.rest.len();
        let count = self.counted.as_ref().map_or(most, |counted| counted.take(most));
        self.is_due = false;
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(count)))))
    }

    /// Returns the number of bytes that have arrived and may not be sent yet.
    pub fn held(&self) -> u64 {
        self.rest.len() as u64
    }

    /// Waits until the next bytes are due.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_due {
            return Poll::Ready(());
        }
        let account = &self.account;
        let counted = self.counted.get_or_insert_with(|| CountedBody::begin(Arc::clone(account)));
        if self.pause.is_none() {
            self.pause = counted.pause().map(|pause| Box::pin(sleep(pause)));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
        }
        (self.pause, self.is_due) = (None, true);
        Poll::Ready(())
    }
}

/// Returns the size of a body of which `rest` has not arrived yet, and `held` bytes were not sent.
pub fn with_held(rest: SizeHint, held: u64) -> SizeHint {
    let mut all = SizeHint::new();
    all.set_lower(rest.lower().saturating_add(held));
    if let Some(upper) = rest.upper() {
        all.set_upper(upper.saturating_add(held));
    }
    all
}
