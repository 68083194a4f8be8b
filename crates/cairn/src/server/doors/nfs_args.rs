//! The options of the NFS door.

use std::net::SocketAddr;

use cairn_auth::Network;

/// Where the door is, and for whom.
#[derive(clap::Args)]
pub struct NfsArgs {
    /// Address of the NFS door, such as 127.0.0.1:2049, for NFS version 3 and MOUNT. Without this
    /// there is no NFS door
    #[arg(long, value_name = "ADDR")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) nfs: Option<SocketAddr>,
    /// Network of clients of the NFS door, such as 10.0.0.0/8; may be given several times. Required
    /// if --nfs is reachable from other machines
    #[arg(long, value_name = "NETWORK", requires = "nfs", value_parser = network)]
    pub(super) nfs_client: Vec<Network>,
    /// Address of a portmapper, such as 0.0.0.0:111, which tells clients the port of the NFS door.
    /// If the rpcbind of this machine has that port, the door registers there. Without this,
    /// clients must name the port
    #[arg(long, value_name = "ADDR", requires = "nfs")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) nfs_portmap: Option<SocketAddr>,
    /// Look up the groups of uids on this machine, and ignore the groups that clients name, of
    /// which there are 16 at most
    #[arg(long, requires = "nfs")]
    pub(super) nfs_groups: bool,
    /// Allow a network of all addresses in --nfs-client
    #[arg(long, requires = "nfs")]
    pub(super) nfs_any_client: bool,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}
