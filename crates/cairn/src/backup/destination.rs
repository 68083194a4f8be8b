//! A server that runs, or a cluster behind a gateway, into which a state is restored: files by a
//! session as mounts have it, keys and exports by the HTTP door.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, Ino, UserId, waits};
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::rows::Inode;
use cairn_fs::{Fs, WireVerb};
use cairn_meta::Meta;
use cairn_meta::session::client;

use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::mount::session::StoreSession;

pub struct Destination {
    pub fs: Fs,
    /// Its client has a runtime, which must not be dropped within another one: the caller of
    /// [`Destination::open`] keeps it, too.
    pub server: Arc<Server>,
    /// Root, without an identity of POSIX: no mode is checked.
    pub caller: Caller,
}

impl Destination {
    pub async fn open(connection: &Connection, server: &Arc<Server>) -> Result<Destination> {
        // Without `hasty`, what an operation has done is durable when it returns.
        let config = client::Config { patience: waits::SLOW_SERVER, ..client::Config::default() };
        let opened = StoreSession::open(vec![connection.known()?], config).await?;
        let StoreSession { client, blocks, clock, user, .. } = opened;
        if user != UserId::ROOT {
            client.close().await;
            let text = "only root restores into a server: set CAIRN_KEY and CAIRN_SECRET to a key \
                        of root";
            return Err(Failure::refused(text));
        }
        let config = cairn_fs::Config::default();
        let fs = Fs::over(Meta::Remote(client), Arc::new(blocks), clock, config);
        Ok(Destination { fs, server: Arc::clone(server), caller: Caller::verified(user) })
    }

    pub async fn run<V: WireVerb>(&self, verb: V) -> cairn_base::Result<V::Reply> {
        self.fs.run(&self.caller, verb).await
    }

    pub async fn read<V: WireVerb>(&self, verb: V) -> cairn_base::Result<V::Reply> {
        self.fs.read(&self.caller, verb).await
    }

    /// Finds a name in a directory; `None` if there is none.
    pub async fn lookup(
        &self,
        parent: Ino,
        name: &[u8],
    ) -> cairn_base::Result<Option<(Ino, Inode)>> {
        match self.read(Lookup { parent, name: name.to_vec() }).await {
            Err(Error::NotFound(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    pub async fn close(self) {
        if let Meta::Remote(session) = self.fs.meta() {
            session.close().await;
        }
    }
}
