//! The connection of a session to the master that serves it.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::waits;
use cairn_base::{Error, Result, SessionId};
use tokio::time::{Instant, timeout_at};

use super::link::Link;
use crate::Watched;

/// The session and the connection it is attached to.
#[derive(Clone)]
pub struct Attachment {
    pub session: SessionId,
    pub link: Arc<dyn Link>,
    pub lease: Duration,
    /// Its number, as the keeper counts.
    pub number: u64,
}

#[derive(Clone)]
enum State {
    /// No master is known to serve the session.
    Detached,
    /// None is reached before somebody does something about this: nobody waits for that.
    Refused(String),
    Attached(Attachment),
    /// For good.
    Closed,
}

/// Where a session is attached, as all that use it see it.
pub struct Connection {
    state: Watched<State>,
}

/// Held by the one task that attaches the session.
pub struct Attacher(());

impl Connection {
    pub fn new() -> (Connection, Attacher) {
        (Connection { state: Watched::new(State::Detached) }, Attacher(()))
    }

    /// Where it is attached now.
    pub fn now(&self) -> Option<Attachment> {
        match self.state.get() {
            State::Attached(attachment) => Some(attachment),
            State::Detached | State::Refused(_) | State::Closed => None,
        }
    }

    /// Waits for a connection with the session attached.
    ///
    /// # Errors
    /// `Unavailable` if there is none for some time, or the session was closed.
    pub async fn attached(&self) -> Result<Attachment> {
        if let Some(attachment) = self.now() {
            return Ok(attachment);
        }
        let found = self.in_time(Instant::now() + waits::MASTER, self.attached_at_last()).await;
        found.unwrap_or_else(|why| Err(Error::Unavailable(why)))
    }

    /// What comes of `work`, or why whoever waits for it is to wait no longer.
    pub async fn in_time<R>(
        &self,
        until: Instant,
        work: impl Future<Output = R>,
    ) -> Result<R, String> {
        let refused = |state: &State| match state {
            State::Refused(why) => Some(why.clone()),
            State::Detached | State::Attached(_) | State::Closed => None,
        };
        tokio::select! {
            biased;
            done = timeout_at(until, work) => {
                done.map_err(|_| format!("no master answered in {:?}", waits::MASTER))
            }
            why = self.state.wait_for(refused) => Err(why),
        }
    }

    /// As [`Connection::attached`], however long that takes.
    ///
    /// # Errors
    /// `Unavailable` if the session was closed.
    pub async fn attached_at_last(&self) -> Result<Attachment> {
        let attached = |state: &State| match state {
            State::Detached | State::Refused(_) => None,
            State::Attached(attachment) => Some(Ok(attachment.clone())),
            State::Closed => Some(Err(Error::Unavailable("the session was closed".into()))),
        };
        self.state.wait_for(attached).await
    }

    /// Waits until it is not attached by this link any more.
    pub async fn detached(&self, link: &Arc<dyn Link>) {
        self.state.wait_for(|state| (!state.is_by(link)).then_some(())).await;
    }

    /// Waits until the session is closed.
    pub async fn closed(&self) {
        self.state.wait_for(|state| matches!(state, State::Closed).then_some(())).await;
    }

    /// The link is no good: the next attempt waits for another one.
    pub fn lost(&self, link: &Arc<dyn Link>) {
        self.state.modify(|state| {
            let is_by = state.is_by(link);
            if is_by {
                *state = State::Detached;
            }
            is_by
        });
    }

    /// Unless it was closed.
    fn enter(&self, next: State) {
        self.state.modify(|state| {
            let changes = match (&*state, &next) {
                (State::Closed, _) | (State::Detached, State::Detached) => false,
                (State::Detached | State::Refused(_) | State::Attached(_), _) => true,
            };
            if changes {
                *state = next;
            }
            changes
        });
    }

    /// It is not attached again. Returns where it was.
    pub fn close(&self) -> Option<Attachment> {
        let mut was = State::Closed;
        self.state.modify(|state| {
            std::mem::swap(state, &mut was);
            true
        });
        match was {
            State::Attached(attachment) => Some(attachment),
            State::Detached | State::Refused(_) | State::Closed => None,
        }
    }
}

impl Attacher {
    /// The session is attached, unless it was closed meanwhile.
    pub fn attach(&mut self, connection: &Connection, attachment: Attachment) {
        connection.enter(State::Attached(attachment));
    }

    /// It was not attached, because of this.
    pub fn fail(&mut self, connection: &Connection, error: Error) {
        connection.enter(match error {
            Error::Denied(why) => State::Refused(why),
            _ => State::Detached,
        });
    }
}

impl State {
    fn is_by(&self, link: &Arc<dyn Link>) -> bool {
        matches!(self, State::Attached(attachment) if Arc::ptr_eq(&attachment.link, link))
    }
}
