//! The connection of a session to the master that serves it.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::waits;
use cairn_base::{Error, Result, SessionId};
use tokio::time::{Instant, timeout_at};

use super::link::MasterLink;
use crate::Watched;

/// The session and the connection it is attached to.
#[derive(Clone)]
pub struct Attachment {
    pub session: SessionId,
    pub link: Arc<dyn MasterLink>,
    pub lease: Duration,
    /// Number of the attachment, counted by the keeper.
    pub number: u64,
}

#[derive(Clone)]
enum ConnectionState {
    /// No master is known to serve the session.
    Detached,
    /// No master can be reached until somebody corrects this, so nobody waits for it.
    Refused(String),
    Attached(Attachment),
    /// The session was closed for good.
    Closed,
}

/// The attachment of a session, as seen by all users of the session.
pub struct Connection {
    state: Watched<ConnectionState>,
    /// Time that a reachable master may take to answer.
    patience: Duration,
}

/// Permission of the single task that attaches the session.
pub struct Attacher(());

impl Connection {
    pub fn new(patience: Duration) -> (Connection, Attacher) {
        (Connection { state: Watched::new(ConnectionState::Detached), patience }, Attacher(()))
    }

    /// Returns the current attachment.
    pub fn now(&self) -> Option<Attachment> {
        match self.state.get() {
            ConnectionState::Attached(attachment) => Some(attachment),
            ConnectionState::Detached | ConnectionState::Refused(_) | ConnectionState::Closed => {
                None
            }
        }
    }

    /// Waits until the session is attached.
    ///
    /// # Errors
    /// `Unavailable` if that takes too long, or the session was closed.
    pub async fn attached(&self) -> Result<Attachment> {
        if let Some(attachment) = self.now() {
            return Ok(attachment);
        }
        let found = self.in_time(Instant::now(), self.attached_at_last()).await;
        found.unwrap_or_else(|why| Err(Error::Unavailable(why)))
    }

    /// Returns the result of `work`, which began at `began`, or the reason why its caller must wait
    /// no longer.
    pub async fn in_time<R>(
        &self,
        began: Instant,
        work: impl Future<Output = R>,
    ) -> Result<R, String> {
        let refused = |state: &ConnectionState| match state {
            ConnectionState::Refused(why) => Some(why.clone()),
            ConnectionState::Detached | ConnectionState::Attached(_) | ConnectionState::Closed => {
                None
            }
        };
        let patience = self.patience;
        tokio::select! {
            biased;
            done = timeout_at(began + patience, work) => {
                done.map_err(|_| format!("no master answered in {patience:?}"))
            }
            why = self.state.wait_for(refused) => Err(why),
            () = self.deserted(began) => Err(format!("no master answered in {:?}", waits::MASTER)),
        }
    }

    /// Waits until there has been no master for [`waits::MASTER`], counted from `began` on.
    async fn deserted(&self, began: Instant) {
        let mut since = began;
        while timeout_at(since + waits::MASTER, self.state.wait_for(ConnectionState::is_settled))
            .await
            .is_ok()
        {
            self.state.wait_for(|state| state.is_settled().is_none().then_some(())).await;
            since = Instant::now();
        }
    }

    /// Waits like [`Connection::attached`], for as long as it takes.
    ///
    /// # Errors
    /// `Unavailable` if the session was closed.
    pub async fn attached_at_last(&self) -> Result<Attachment> {
        let attached = |state: &ConnectionState| match state {
            ConnectionState::Detached | ConnectionState::Refused(_) => None,
            ConnectionState::Attached(attachment) => Some(Ok(attachment.clone())),
            ConnectionState::Closed => {
                Some(Err(Error::Unavailable("the session was closed".into())))
            }
        };
        self.state.wait_for(attached).await
    }

    /// Waits until the session is no longer attached by this link.
    pub async fn detached(&self, link: &Arc<dyn MasterLink>) {
        self.state.wait_for(|state| (!state.is_by(link)).then_some(())).await;
    }

    /// Waits until the session is closed.
    pub async fn closed(&self) {
        self.state.wait_for(|state| matches!(state, ConnectionState::Closed).then_some(())).await;
    }

    /// Notes that the link failed: the next attempt waits for another one.
    pub fn lost(&self, link: &Arc<dyn MasterLink>) {
        self.state.modify(|state| {
            let is_by = state.is_by(link);
            if is_by {
                *state = ConnectionState::Detached;
            }
            is_by
        });
    }

    /// Changes the state, unless the session was closed.
    fn enter(&self, next: ConnectionState) {
        self.state.modify(|state| {
            let changes = match (&*state, &next) {
                (ConnectionState::Closed, _)
                | (ConnectionState::Detached, ConnectionState::Detached) => false,
                (
                    ConnectionState::Detached
                    | ConnectionState::Refused(_)
                    | ConnectionState::Attached(_),
                    _,
                ) => true,
            };
            if changes {
                *state = next;
            }
            changes
        });
    }

    /// Closes the connection for good. Returns the last attachment.
    pub fn close(&self) -> Option<Attachment> {
        let mut was = ConnectionState::Closed;
        self.state.modify(|state| {
            std::mem::swap(state, &mut was);
            true
        });
        match was {
            ConnectionState::Attached(attachment) => Some(attachment),
            ConnectionState::Detached | ConnectionState::Refused(_) | ConnectionState::Closed => {
                None
            }
        }
    }
}

impl Attacher {
    /// Notes that the session is attached, unless it was closed meanwhile.
    pub fn attach(&mut self, connection: &Connection, attachment: Attachment) {
        connection.enter(ConnectionState::Attached(attachment));
    }

    /// Notes why an attempt to attach failed.
    pub fn fail(&mut self, connection: &Connection, error: Error) {
        connection.enter(match error {
            Error::Denied(why) => ConnectionState::Refused(why),
            _ => ConnectionState::Detached,
        });
    }
}

impl ConnectionState {
    /// Returns whether a master answers, or none ever will.
    fn is_settled(&self) -> Option<()> {
        matches!(self, ConnectionState::Attached(_) | ConnectionState::Closed).then_some(())
    }

    fn is_by(&self, link: &Arc<dyn MasterLink>) -> bool {
        matches!(self, ConnectionState::Attached(attachment) if Arc::ptr_eq(&attachment.link, link))
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;
    use tokio::time::sleep;

    use super::*;
    use crate::session::link::LostCall;
    use crate::session::messages::SessionMethod;

    struct Silent;

    #[async_trait]
    impl MasterLink for Silent {
        async fn call(&self, _: SessionMethod, _: Bytes) -> Result<Bytes, LostCall> {
            std::future::pending().await
        }
    }

    fn attachment() -> Attachment {
        let (session, lease) = (SessionId(1), Duration::from_secs(10));
        Attachment { session, link: Arc::new(Silent), lease, number: 0 }
    }

    /// Returns how long a request waits that is answered after `answer` seconds, and whether it is
    /// answered. The server goes and comes back in turn after the seconds of `turns`; it is there
    /// at first.
    async fn waited(patience: Duration, answer: u64, turns: &[u64]) -> (u64, bool) {
        let (connection, mut attacher) = Connection::new(patience);
        let mut server = attachment();
        attacher.attach(&connection, server.clone());
        let turn = async {
            for (number, seconds) in turns.iter().enumerate() {
                sleep(Duration::from_secs(*seconds)).await;
                if number % 2 == 0 {
                    connection.lost(&server.link);
                } else {
                    server = attachment();
                    attacher.attach(&connection, server.clone());
                }
            }
            std::future::pending().await
        };
        let began = Instant::now();
        let asked = connection.in_time(began, sleep(Duration::from_secs(answer)));
        let answered = tokio::select! { answered = asked => answered, () = turn => unreachable!() };
        (began.elapsed().as_secs(), answered.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_there_is_waited_for_longer_than_one_that_is_gone() {
        const NEVER: u64 = 1000;
        let mount = async |answer, turns: &[u64]| waited(waits::SLOW_SERVER, answer, turns).await;
        assert_eq!(mount(80, &[]).await, (80, true));
        assert_eq!(mount(NEVER, &[]).await, (90, false));
        assert_eq!(mount(NEVER, &[0]).await, (30, false));
        assert_eq!(mount(NEVER, &[20]).await, (50, false));
        assert_eq!(mount(70, &[20, 20, 15, 5]).await, (70, true));
        assert_eq!(mount(NEVER, &[20, 20, 15, 5]).await, (90, false));
        assert_eq!(waited(waits::MASTER, NEVER, &[]).await, (30, false));
        let (connection, _attacher) = Connection::new(waits::SLOW_SERVER);
        let began = Instant::now();
        assert!(connection.attached().await.is_err());
        assert_eq!(began.elapsed().as_secs(), waits::MASTER.as_secs());
    }
}
