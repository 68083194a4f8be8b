//! Mounts of this server or gateway: they connect at the HTTP door.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::Error;
use cairn_cluster::mount::{self, MountHost};
use cairn_doors::http::{Mounted, Mounts};
use cairn_meta::master::host::Sessions;
use tokio::time::{MissedTickBehavior, interval};

use super::open::Parts;

/// How often there is a look for sessions that have lapsed.
const LOOK: Duration = Duration::from_millis(250);

/// Mounts of a server.
pub fn of_server(parts: &Parts) -> Mounts {
    let blocks = Arc::new(parts.blocks.clone());
    let directory = parts.dir.blocks().canonicalize().ok();
    let (sessions, meta) = (Arc::clone(&parts.sessions), parts.fs.meta().clone());
    take(MountHost::new(sessions, meta, blocks, directory.as_deref()))
}

/// Goes on with mounts that have connected.
pub fn take(host: Arc<MountHost>) -> Mounts {
    Mounts::new(move |mounted: Mounted| {
        let Mounted { caller, address, stream, revoked } = mounted;
        let standing = Arc::new(move || match revoked.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Error::Denied("the credentials hold no longer".into())),
        });
        let link = mount::link(Box::new(stream), address.to_string(), standing);
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            if let Err(error) = host.serve(caller, link, address.ip().is_loopback()).await {
                tracing::debug!(%address, %error, "a mount was not served");
            }
        });
    })
}

/// Ends sessions that have lapsed, for ever.
pub async fn tick(sessions: Arc<Sessions>) {
    let mut timer = interval(LOOK);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if let Err(error) = sessions.tick().await {
            tracing::warn!(%error, "sessions that lapsed were not ended");
        }
    }
}
