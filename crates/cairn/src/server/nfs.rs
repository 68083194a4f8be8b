//! The NFS door of a server or gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_auth::{HandleKey, Network};
use cairn_base::rng::RealRng;
use cairn_fs::Fs;
use cairn_nfs::{Desk, Ended, Options, Outcome, PROCEDURES, Sockets, Watch};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::watch;

use cairn_doors::metrics::Metrics;
use cairn_doors::serve;

use crate::failure::{Failure, Result};

/// Connections at the same time, at most. A client has one, or some of them.
const CONNECTIONS: usize = 1024;

/// Where the door is, and for whom.
#[derive(clap::Args)]
pub struct NfsArgs {
    /// Where the NFS door listens, such as 127.0.0.1:2049: version 3 and MOUNT. Without this there
    /// is none
    #[arg(long, value_name = "ADDR")]
    nfs: Option<SocketAddr>,
    /// A network that clients of the NFS door are in, such as 10.0.0.0/8; several are fine. Beyond
    /// this machine there must be one
    #[arg(long, value_name = "NETWORK", requires = "nfs", value_parser = network)]
    nfs_client: Vec<Network>,
    /// Where clients ask for the port of the NFS door, such as 0.0.0.0:111. Without this they must
    /// be told the port
    #[arg(long, value_name = "ADDR", requires = "nfs")]
    nfs_portmap: Option<SocketAddr>,
    /// Mean it where a network of --nfs-client is that of all addresses
    #[arg(long, requires = "nfs")]
    nfs_any_client: bool,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}

/// The sockets of the door. Connections are refused until it is served.
pub struct Bound {
    sockets: Vec<(TcpSocket, UdpSocket)>,
    clients: Arc<[Network]>,
    pub address: SocketAddr,
}

impl NfsArgs {
    /// Must be called within a runtime.
    pub fn listen(&self) -> Result<Option<Bound>> {
        let Some(address) = self.nfs else { return Ok(None) };
        let clients = self.clients(address)?;
        let first = bind(address)?;
        let address = first.0.local_addr()?;
        let mut sockets = vec![first];
        if let Some(portmap) = self.nfs_portmap {
            // It is as open as the door is.
            self.clients(portmap)?;
            sockets.push(bind(portmap)?);
        }
        if !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "the NFS door is reachable from other machines: it has neither passwords nor \
                 encryption, and who is in a network of --nfs-client may be whom it likes there"
            );
        }
        Ok(Some(Bound { sockets, clients, address }))
    }

    /// # Errors
    /// Where anybody could come, and nobody said so.
    fn clients(&self, address: SocketAddr) -> Result<Arc<[Network]>> {
        if let Some(any) = self.nfs_client.iter().find(|network| network.is_any())
            && !self.nfs_any_client
        {
            return Err(Failure::usage(format!(
                "--nfs-client {any} is every machine that reaches this one: say --nfs-any-client if \
                 that is meant"
            )));
        }
        if !self.nfs_client.is_empty() {
            return Ok(self.nfs_client.as_slice().into());
        }
        if !address.ip().is_loopback() {
            return Err(Failure::usage(format!(
                "--nfs {address} is for other machines, and NFS has no passwords: say with \
                 --nfs-client which network clients are in"
            )));
        }
        let loopback = ["127.0.0.0/8", "::1"].map(Network::parse);
        Ok(loopback.into_iter().collect::<Result<_, _>>()?)
    }
}

/// Sockets for streams and for datagrams, of one port.
fn bind(address: SocketAddr) -> Result<(TcpSocket, UdpSocket)> {
    let failed = |error| Failure::new(format!("NFS door on {address}: {error}"));
    let socket = serve::bind(address).map_err(failed)?;
    let datagrams = std::net::UdpSocket::bind(socket.local_addr()?).map_err(failed)?;
    datagrams.set_nonblocking(true)?;
    Ok((socket, UdpSocket::from_std(datagrams)?))
}

impl Bound {
    /// Takes connections until `stopped`.
    pub fn serve(
        self,
        fs: &Fs,
        key: HandleKey,
        connections: usize,
        (metrics, stopped): (&Arc<Metrics>, &watch::Receiver<bool>),
    ) -> Result<impl Future<Output = ()> + Send + 'static> {
        let Bound { sockets, clients, address } = self;
        let (mut listeners, mut datagrams) = (Vec::new(), Vec::new());
        for (socket, socket_of_datagrams) in sockets {
            listeners.push(serve::begin(socket)?);
            datagrams.push(socket_of_datagrams);
        }
        let sockets = Sockets { listeners, datagrams };
        let runtime = tokio::runtime::Handle::current();
        let desk = Desk::new(
            fs.clone(),
            key,
            &RealRng,
            runtime,
            (address.port(), Some(counting(metrics))),
        );
        let options = Options { clients, connections: connections.min(CONNECTIONS) };
        Ok(cairn_nfs::serve(sockets, desk, options, stopped.clone()))
    }
}

/// Has calls counted as requests of the other doors are.
fn counting(metrics: &Arc<Metrics>) -> Watch {
    let verbs = PROCEDURES.map(|name| metrics.verb("nfs", name));
    let observer = Arc::clone(metrics.observer());
    let end = move |ended: Ended| {
        let Some(stats) = verbs.get(ended.procedure) else { return };
        let status = match ended.outcome {
            Outcome::Fine => 200,
            Outcome::Refused => 400,
            Outcome::NotNow => 503,
            Outcome::Failed => 500,
        };
        stats.received(ended.received);
        stats.record(status, &ended.stages, ended.sent);
    };
    Watch { begin: Arc::new(move || observer.begin_alone()), end: Arc::new(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(nfs: &str, clients: &[&str], nfs_any_client: bool) -> NfsArgs {
        let nfs_client = clients.iter().map(|text| Network::parse(text).unwrap()).collect();
        let nfs = Some(nfs.parse().unwrap());
        NfsArgs { nfs, nfs_client, nfs_portmap: None, nfs_any_client }
    }

    #[test]
    fn only_who_was_named_may_come() {
        for (nfs, clients, any, is_fine) in [
            ("127.0.0.1:2049", &[][..], false, true),
            ("[::1]:2049", &[], false, true),
            ("0.0.0.0:2049", &[], false, false),
            ("[::]:2049", &[], true, false),
            ("10.1.2.3:2049", &[], false, false),
            ("0.0.0.0:2049", &["10.0.0.0/8"], false, true),
            ("0.0.0.0:2049", &["10.0.0.0/8", "0.0.0.0/0"], false, false),
            ("0.0.0.0:2049", &["0.0.0.0/0"], true, true),
            ("127.0.0.1:2049", &["::/0"], false, false),
        ] {
            let args = args(nfs, clients, any);
            let address = args.nfs.unwrap();
            assert_eq!(args.clients(address).is_ok(), is_fine, "{nfs} {clients:?} {any}");
        }
    }
}
