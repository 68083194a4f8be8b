//! The metadata as the rest of the store uses them, wherever the master is.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Action, Caller, Principal, Resource, authorize};
use cairn_base::inflight::{WaitTarget, waiting};
use cairn_base::{Result, SessionId, Stage, Timestamp, stage};

use crate::master;
use crate::master::host::Sessions;
use crate::master::threads;
use crate::memo::Memo;
use crate::session::MasterSilence;
use crate::session::client::{self, Client};
use crate::{Master, RowWatch, WireVerb, dump, sights};

/// The access to the metadata: the master in this process, or a session with a master on another
/// machine. Clones share it.
#[derive(Clone)]
pub enum Meta {
    Local {
        master: Master,
        /// The session of this process.
        session: SessionId,
        /// Sessions of other processes, if there can be any: callers that read or change rows which
        /// these may hold wait until they are open.
        sessions: Option<Arc<Sessions>>,
    },
    Remote(Client),
}

/// Counters of the master or client in this process.
#[derive(Clone, Copy, Debug)]
pub enum Stats {
    Local(master::Stats),
    Remote(client::Stats),
}

impl Meta {
    /// Runs an operation that may change rows. Its changes are durable when it returns, unless
    /// [`client::Config`] allows otherwise.
    pub async fn run<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { master, sessions, .. } => {
                let running = async {
                    opened(sessions, caller).await;
                    let Some(wanted) = sights::wanted() else {
                        return master.run(caller, verb).await;
                    };
                    let inodes = wanted.inodes().to_vec();
                    let (reply, sights) = master.run_seeing(caller, verb, inodes).await?;
                    wanted.add(sights);
                    Ok(reply)
                };
                waiting(|| awaited(sessions), running).await
            }
            Meta::Remote(client) => client.run(caller, verb).await,
        }
    }

    /// Runs a verb like [`Meta::run`] if this process may run it on its own; `None` otherwise.
    /// Never blocks.
    pub fn run_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<V::Reply> {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { .. } => None,
            Meta::Remote(client) => client.run_now(caller, verb),
        }
    }

    /// Runs an operation that only reads.
    pub async fn read<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { master, sessions, .. } => {
                let reading = async {
                    opened(sessions, caller).await;
                    master.read(caller, verb).await
                };
                waiting(|| awaited(sessions), reading).await
            }
            Meta::Remote(client) => client.read(caller, verb).await,
        }
    }

    /// Reads like [`Meta::read`], but never from memory, so that the master notices the read.
    pub async fn read_anew<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        match self {
            Meta::Local { .. } => self.read(caller, verb).await,
            Meta::Remote(client) => {
                let _timed = stage::enter(Stage::Meta);
                client.read_anew(caller, verb).await
            }
        }
    }

    /// Reads like [`Meta::read`] if all rows are in memory; `None` otherwise. Never blocks.
    pub fn read_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { sessions: Some(sessions), .. } if !sessions.opened_now() => None,
            Meta::Local { master, .. } => master.read_now(caller, verb),
            Meta::Remote(client) => client.read_now(caller, verb),
        }
    }

    /// Reads like [`Meta::read_now`], and returns what is needed to use the reply again.
    pub fn read_memo<V: WireVerb>(
        &self,
        caller: &Caller,
        verb: &V,
    ) -> Option<Result<Memo<V::Reply>>> {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { sessions: Some(sessions), .. } if !sessions.opened_now() => None,
            Meta::Local { master, .. } => master.read_memo(caller, verb),
            Meta::Remote(client) => client.read_memo(caller, verb),
        }
    }

    /// Returns whether the caller that `memo` was made for would get the same reply now.
    pub fn is_current<R>(&self, memo: &Memo<R>) -> bool {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { master, .. } => master.is_current(memo),
            Meta::Remote(client) => client.is_current(memo),
        }
    }

    /// Watches a row that was read here: the watch is notified once a read would find a change.
    /// Changes of a row that is not leased to this process are not noticed.
    pub fn watch(&self, key: Bytes) -> RowWatch {
        match self {
            Meta::Local { master, .. } => master.watch(key),
            Meta::Remote(client) => client.watch(key),
        }
    }

    /// Writes a dump of all current rows. Blocks; call it within a tokio runtime.
    ///
    /// # Errors
    /// `Denied` for anybody but root; those of [`dump::write`] and of [`client::Client::dump`].
    pub fn dump(
        &self,
        caller: &Caller,
        now: Timestamp,
        out: &mut dyn Write,
    ) -> Result<dump::Summary> {
        authorize(caller, Action::DumpMetadata, Resource::Store, &caller.context(now))?;
        match self {
            Meta::Local { master, .. } => dump::write(&*master.snapshot()?, out, &mut |_| {}),
            Meta::Remote(client) => threads::block_on(client.dump(caller, out)),
        }
    }

    /// Returns the session whose blocks may be published now.
    pub fn session(&self) -> SessionId {
        match self {
            Meta::Local { session, .. } => *session,
            Meta::Remote(client) => client.session(),
        }
    }

    /// Returns the session that blocks belong to that are written now; `Unavailable` if it may have
    /// ended.
    pub fn writing_session(&self) -> Result<SessionId> {
        match self {
            Meta::Local { session, .. } => Ok(*session),
            Meta::Remote(client) => client.writing_session(),
        }
    }

    /// Returns a batch that all reads see that begin now.
    pub fn settled_batch(&self) -> u64 {
        match self {
            Meta::Local { master, .. } => master.durable_batch(),
            Meta::Remote(client) => client.settled_batch(),
        }
    }

    /// Checks the space for callers that are about to write blocks for an operation to name: `Full`
    /// if the operation would be refused. A remote master only reports this when it runs the
    /// operation.
    pub fn check_space(&self) -> Result<()> {
        match self {
            Meta::Local { master, .. } => master.check_space(),
            Meta::Remote(_) => Ok(()),
        }
    }

    /// Waits until all operations that ran before are durable, if they are not when they have run.
    ///
    /// # Errors
    /// See [`Client::flush`].
    pub async fn flush(&self) -> Result<()> {
        let _timed = stage::enter(Stage::Meta);
        match self {
            Meta::Local { .. } => Ok(()),
            Meta::Remote(client) => client.flush().await,
        }
    }

    /// Returns the number of operations that failed after they had been acknowledged.
    pub fn lost(&self) -> u64 {
        match self {
            Meta::Local { .. } => 0,
            Meta::Remote(client) => client.lost(),
        }
    }

    /// Returns why nothing can be changed, if so.
    pub fn failed(&self) -> Option<String> {
        match self {
            Meta::Local { master, .. } => master.failed(),
            Meta::Remote(client) if client.is_attached() => None,
            Meta::Remote(_) => Some("no master answers".to_owned()),
        }
    }

    /// Returns how long no master has answered, if the master is in another process.
    pub fn silence(&self) -> Option<MasterSilence> {
        match self {
            Meta::Local { .. } => None,
            Meta::Remote(client) => Some(client.silence()),
        }
    }

    pub fn stats(&self) -> Stats {
        match self {
            Meta::Local { master, .. } => Stats::Local(master.stats()),
            Meta::Remote(client) => Stats::Remote(client.stats()),
        }
    }
}

/// Returns the name of what requests in flight wait for.
fn awaited(sessions: &Option<Arc<Sessions>>) -> WaitTarget {
    match sessions {
        Some(sessions) => sessions.awaited(),
        None => WaitTarget::Text("the master in this process".into()),
    }
}

/// Waits until no session can answer from older rows. The store's own work changes nothing that
/// sessions read.
async fn opened(sessions: &Option<Arc<Sessions>>, caller: &Caller) {
    if let Some(sessions) = sessions
        && caller.principal() != Principal::System
    {
        sessions.opened().await;
    }
}
