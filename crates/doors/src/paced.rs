//! Bodies of users who have a limit of bytes a second: pieces wait until there is room for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cairn_auth::{Caller, Principal};
use cairn_fs::{Account, Fs};
use tokio::time::{Sleep, sleep};

/// The account of a caller with limits.
///
/// # Errors
/// How long it takes until the caller may send a request again.
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

/// The whole seconds after which a refused client should come back.
pub fn seconds(wait: std::time::Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// Takes the bytes of one body from an account. A reply carries it to where its body is sent.
#[derive(Clone)]
pub struct Paced {
    account: Arc<Account>,
}

/// A body at its pace.
pub struct Pacing {
    account: Arc<Account>,
    pause: Option<Pin<Box<Sleep>>>,
    /// The pause for the next bytes is over, or there was none.
    is_due: bool,
}

impl Paced {
    pub fn new(account: Arc<Account>) -> Paced {
        Paced { account }
    }

    pub fn begin(self) -> Pacing {
        Pacing { account: self.account, pause: None, is_due: false }
    }
}

impl Pacing {
    /// Waits until the next bytes are due.
    pub fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_due {
            return Poll::Ready(());
        }
        if self.pause.is_none() {
            self.pause = self.account.pause().map(|pause| Box::pin(sleep(pause)));
        }
        if let Some(pause) = &mut self.pause
            && pause.as_mut().poll(context).is_pending()
        {
            return Poll::Pending;
        }
        (self.pause, self.is_due) = (None, true);
        Poll::Ready(())
    }

    /// Bytes went.
    pub fn went(&mut self, bytes: usize) {
        self.is_due = false;
        self.account.take_bytes(bytes as u64);
    }
}
