//! The address at which a node listens for other nodes.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::failure::{Failure, Result};
use crate::node::host_and_port;

#[derive(clap::Args)]
pub struct ListenArgs {
    /// Address where this node listens for other nodes. All traffic is encrypted, and only nodes of
    /// the cluster are admitted
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7400")]
    #[arg(value_parser = crate::listen_address::parse)]
    listen: SocketAddr,
    /// HOST:PORT at which other nodes reach this node, if it differs from --listen
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    address: Option<String>,
}

impl ListenArgs {
    /// Binds the socket, and returns the address by which others reach it.
    pub async fn bind(&self) -> Result<(TcpListener, String)> {
        let listen = self.listen;
        let bound = TcpListener::bind(listen).await;
        let listener = bound.map_err(|error| {
            Failure::address("the port of this node", "--listen", listen, &error)
        })?;
        let local = listener.local_addr()?;
        match &self.address {
            Some(address) => Ok((listener, address.clone())),
            None if local.ip().is_unspecified() => Err(Failure::usage(format!(
                "--listen {listen} is every address of this machine: say by --address HOST:PORT \
                 under which one other nodes reach it"
            ))),
            None => Ok((listener, local.to_string())),
        }
    }
}
