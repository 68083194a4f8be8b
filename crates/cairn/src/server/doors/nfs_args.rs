//! The options of the NFS door.

use std::net::SocketAddr;

use cairn_auth::Network;

/// Where the door is, and for whom.
#[derive(clap::Args)]
pub struct NfsArgs {
    /// Where the NFS door listens, such as 127.0.0.1:2049: version 3 and MOUNT. Without this there
    /// is none
    #[arg(long, value_name = "ADDR")]
    pub(super) nfs: Option<SocketAddr>,
    /// A network that clients of the NFS door are in, such as 10.0.0.0/8; several are fine. Beyond
    /// this machine there must be one
    #[arg(long, value_name = "NETWORK", requires = "nfs", value_parser = network)]
    pub(super) nfs_client: Vec<Network>,
    /// Where clients ask for the port of the NFS door, such as 0.0.0.0:111. Without this they must
    /// be told the port
    #[arg(long, value_name = "ADDR", requires = "nfs")]
    pub(super) nfs_portmap: Option<SocketAddr>,
    /// Mean it where a network of --nfs-client is that of all addresses
    #[arg(long, requires = "nfs")]
    pub(super) nfs_any_client: bool,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}
