//! Path of one mount to the master that answers its session. That master may be in this process, or
//! be the one of a cluster that serves. There each mount has a separate connection, which ends with
//! the mount's, and the mount's with it. So the mount attaches again, as a gateway does, whichever
//! of the two was lost, and no mount waits for the requests of another.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::inflight::{About, Request, within};
use cairn_base::waits;
use cairn_base::{Error, Party, Result, Share, Shares, UserId, stage};
use cairn_meta::master::host::{self, Answer, Sessions};
use cairn_meta::session::SessionMethod;
use tokio::sync::OnceCell;

use crate::control::messages::{self, Vouched, VouchedFrom};
use crate::control::{Agent, forward, join, relay};
use crate::limits::MOUNTS;
use crate::wire::Peer;

/// Home of the sessions of mounts.
pub enum SessionHome {
    Here(Arc<Sessions>),
    /// The master that serves, whichever it is; and room for a limited number of mounts.
    Cluster(Arc<Agent>, Arc<Shares>),
}

impl SessionHome {
    pub fn of_cluster(agent: Arc<Agent>) -> SessionHome {
        SessionHome::Cluster(agent, Shares::new(MOUNTS as u64))
    }

    /// Returns the generation of the metadata that this process uses.
    pub fn generation(&self) -> u64 {
        match self {
            SessionHome::Here(_) => 0,
            SessionHome::Cluster(agent, _) => agent.view().map().generation,
        }
    }
}

/// Path of one mount. Made when its session needs it.
#[derive(Default)]
pub struct Way(OnceCell<Upstream>);

struct Upstream {
    master: Peer,
    _room: Share,
}

impl Way {
    /// Checks that a master serves.
    ///
    /// # Errors
    /// `Unavailable` if none does, or if there is no room for the mount of `user`. This connection
    /// then never leads to a serving master again: the mount has to open another one.
    pub async fn open(&self, place: &SessionHome, user: UserId, mount: &Peer) -> Result<()> {
        let SessionHome::Cluster(agent, mounts) = place else { return Ok(()) };
        let was_open = self.0.initialized();
        let master = self.upstream(agent, mounts, user, mount).await?;
        if was_open {
            // A master may have ceased to serve and live.
            master
                .call(messages::ControlMethod::Serves as u16, Bytes::new(), waits::MOUNT_MASTER)
                .await?;
        }
        Ok(())
    }

    async fn upstream(
        &self,
        agent: &Agent,
        mounts: &Arc<Shares>,
        user: UserId,
        mount: &Peer,
    ) -> Result<&Peer> {
        let open = async {
            let full = || {
                let text = format!(
                    "this gateway takes no more mounts of this user: it has {MOUNTS} places, and \
                     keeps a quarter of them for other users than the one that has the rest",
                );
                Error::Unavailable(text)
            };
            let room = mounts.take_now(Party::User(user), 1).ok_or_else(full)?;
            let (master, recalls) = agent.connect(waits::MOUNT_MASTER).await?;
            tokio::spawn(relay(mount.clone(), recalls));
            Ok::<_, Error>(Upstream { master, _room: room })
        };
        Ok(&self.0.get_or_try_init(|| open).await?.master)
    }

    /// Sends a message of a session of the user who is `caller`. The master makes the caller of the
    /// requests.
    pub async fn ask(
        &self,
        place: &SessionHome,
        caller: &Caller,
        mount: &Peer,
        method: SessionMethod,
        message: Bytes,
    ) -> Result<Bytes> {
        let (user, origin) = (caller.user(), *caller.origin());
        match place {
            SessionHome::Here(sessions) => {
                let from = host::Sender::mount(user).from(origin).over(mount.info().connection);
                match sessions.handle(&from, method, &message).await? {
                    Answer::Bytes(bytes) => Ok(bytes),
                    Answer::Attached(bytes, recalls) => {
                        tokio::spawn(forward(mount.clone(), recalls));
                        Ok(bytes)
                    }
                }
            }
            SessionHome::Cluster(agent, mounts) => {
                let about = move || About {
                    door: "session",
                    operation: format!("{method:?}").into(),
                    user: Some(user),
                    waits_for: Some("the master".to_owned()),
                    ..About::default()
                };
                let asking = async {
                    let master = self.upstream(agent, mounts, user, mount).await?;
                    let vouched = Vouched { user, method: method as u16 };
                    let vouched = join(&VouchedFrom { vouched, origin }, message)?;
                    let method = messages::ControlMethod::VouchedFrom as u16;
                    Ok(master.attempt(method, vouched, waits::SLOW_SERVER).await?)
                };
                within(Request::new(stage::trace(), about), asking).await
            }
        }
    }
}
