//! Mounts of this server or gateway: they connect at the HTTP door.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_base::Error;
use cairn_cluster::mount::{self, MountHost};
use cairn_cluster::wire::Required;
use cairn_doors::http::{ConnectedMount, Mounts};
use cairn_doors::metrics::{MoreNumbers, gauge};

use super::open::Parts;

/// Makes the mounts of a server, and their metrics.
pub fn of_server(parts: &Parts) -> (Mounts, MoreNumbers) {
    let blocks = Arc::new(parts.blocks.clone());
    let directory = parts.dir.blocks().canonicalize().ok();
    let (sessions, meta) = (Arc::clone(&parts.sessions), parts.fs.meta().clone());
    let host = MountHost::new(sessions, meta, blocks, directory.as_deref());
    let capabilities = parts.capabilities;
    (take(Arc::clone(&host), Arc::new(move || capabilities)), numbers(&host))
}

/// Returns the metrics of the blocks and bodies that are remembered for mounts.
pub fn numbers(host: &Arc<MountHost>) -> MoreNumbers {
    let host = Arc::clone(host);
    let help = "Blocks and bodies that mounts were told of, so that they may read them";
    Arc::new(move || vec![gauge("mount_disclosed_ids", help, host.disclosed_ids())])
}

/// Takes over connections of mounts whose programs have the `required` capabilities.
pub fn take(host: Arc<MountHost>, required: Required) -> Mounts {
    Mounts::new(move |mounted: ConnectedMount| {
        let ConnectedMount { caller, address, stream, revoked } = mounted;
        let standing = Arc::new(move || {
            if revoked.load(Ordering::SeqCst) {
                Err(Error::Denied("the credentials have been revoked".into()))
            } else {
                Ok(())
            }
        });
        let link =
            mount::link(Box::new(stream), address.to_string(), Arc::clone(&required), standing);
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            if let Err(error) = host.serve(caller, link, address.ip().is_loopback()).await {
                tracing::debug!(%address, %error, "a mount was not served");
            }
        });
    })
}
