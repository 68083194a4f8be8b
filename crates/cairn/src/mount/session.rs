//! A session with a server, or with any of several gateways, through their HTTP doors.

use std::sync::Arc;

use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, Rng, UserId};
use cairn_cluster::mount::{Agent, MountBlocks};
use cairn_cluster::wire::Dial;
use cairn_meta::session::client::{self, Client};

use super::dial::HttpDialer;
use crate::connection::ServerAccess;
use crate::failure::Result;

/// Metadata and blocks of a server, as a user.
pub struct StoreSession {
    pub client: Client,
    pub blocks: MountBlocks,
    pub clock: Arc<dyn Clock>,
    pub user: UserId,
    /// Addresses of the servers.
    pub source: String,
}

impl StoreSession {
    /// Connects, as the user of the first server's credentials.
    pub async fn open(servers: Vec<ServerAccess>, config: client::Config) -> Result<StoreSession> {
        let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
            (Arc::new(RealClock::default()), Arc::new(RealRng));
        let dialer = HttpDialer::new(servers)?;
        // Reports an error in the address or the credentials now.
        let user = dialer.user().await?;
        let addresses = dialer.addresses();
        let source = addresses.join(",");
        let dialer: Arc<dyn Dial> = Arc::new(dialer);
        let agent = Agent::new(Arc::clone(&dialer), addresses, Arc::clone(&rng));
        let dial = Arc::clone(&agent) as _;
        let client = Client::start(dial, Arc::clone(&clock), Arc::clone(&rng), config).await?;
        let session = client.clone();
        let blocks = MountBlocks::new(&dialer, agent, &rng, move || session.session());
        Ok(StoreSession { client, blocks, clock, user, source })
    }
}
