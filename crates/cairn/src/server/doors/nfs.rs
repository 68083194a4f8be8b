//! The NFS door of a server or gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_audit::{Actor, AuditOutcome, AuditRecord, LineLog};
use cairn_auth::Network;
use cairn_base::rng::RealRng;
use cairn_doors::metrics::DoorMetrics;
use cairn_doors::serve;
use cairn_nfs::{Desk, Ended, Options, Outcome, PROCEDURES, Ran, Sockets, Watch};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

use super::door::{Behind, Bound, Door, DoorArgs, Served};
use super::nfs_args::NfsArgs;
use crate::failure::{Failure, Result};
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "nfs", bind };

/// Connections at the same time, at most. A client has one, or some of them.
const CONNECTIONS: usize = 1024;

/// The sockets that are bound beside the first one, and which networks clients are in.
struct Offered {
    datagrams: UdpSocket,
    /// Of the portmapper.
    portmap: Option<(TcpSocket, UdpSocket)>,
    port: u16,
    clients: Arc<[Network]>,
}

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    args.nfs.bind()
}

impl NfsArgs {
    /// Must be called within a runtime.
    fn bind(&self) -> Result<Option<Bound>> {
        let Some(address) = self.nfs else { return Ok(None) };
        let clients = self.clients(address)?;
        let (socket, datagrams) = bind_both(address)?;
        let address = socket.local_addr()?;
        let portmap = match self.nfs_portmap {
            Some(portmap) => {
                // It is as open as the door is.
                self.clients(portmap)?;
                Some(bind_both(portmap)?)
            }
            None => None,
        };
        if !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "the NFS door is reachable from other machines: it has neither passwords nor \
                 encryption, and any machine in a network of --nfs-client may claim any uid"
            );
        }
        let offered = Offered { datagrams, portmap, port: address.port(), clients };
        let serve = |listener, behind: &mut Behind<'_>| serve(listener, behind, offered);
        let (shown, pages) = (address.to_string(), Vec::new());
        Ok(Some(Bound { socket, shown, pages, is_optional: false, serve: Box::new(serve) }))
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

fn serve(listener: TcpListener, behind: &mut Behind<'_>, offered: Offered) -> Result<Served> {
    let Offered { datagrams, portmap, port, clients } = offered;
    let mut sockets = Sockets { listeners: vec![listener], datagrams: vec![datagrams] };
    if let Some((socket, datagrams)) = portmap {
        sockets.listeners.push(serve::begin(socket)?);
        sockets.datagrams.push(datagrams);
    }
    let missing = || Failure::new("the NFS door has no key for handles");
    let key = behind.offers.handles.take().ok_or_else(missing)?;
    let watch = counting(&behind.metrics.door(DOOR.name), behind.offers.records.audit().cloned());
    let runtime = tokio::runtime::Handle::current();
    let desk = Desk::new(behind.fs.clone(), key, &RealRng, runtime, (port, watch));
    let connections = behind.serving.limits.connections.min(CONNECTIONS);
    let options = Options { clients, connections };
    Ok(Box::pin(cairn_nfs::serve(sockets, desk, options, behind.stopped.clone())))
}

/// Sockets for streams and for datagrams, of one port.
fn bind_both(address: SocketAddr) -> Result<(TcpSocket, UdpSocket)> {
    let failed = |error| Failure::new(format!("NFS door on {address}: {error}"));
    let socket = serve::bind(address).map_err(failed)?;
    let datagrams = std::net::UdpSocket::bind(socket.local_addr()?).map_err(failed)?;
    datagrams.set_nonblocking(true)?;
    Ok((socket, UdpSocket::from_std(datagrams)?))
}

/// A call for the audit.
fn recorded(ran: Ran) -> AuditRecord {
    let outcome = match ran.outcome {
        _ if ran.is_refused => AuditOutcome::Refused,
        Outcome::Fine => AuditOutcome::Done,
        Outcome::Refused => AuditOutcome::Failed,
        Outcome::NotNow | Outcome::Failed => AuditOutcome::Unknown,
    };
    let (uid, source) = (ran.uid, Some(ran.client.to_canonical()));
    AuditRecord {
        door: DOOR.name,
        operation: ran.procedure.into(),
        outcome,
        actor: Actor { user: ran.user, uid, source, ..Actor::default() },
        resource: Some(ran.object),
        status: ran.status,
        trace: ran.trace.map(|trace| trace.to_string()),
        ..AuditRecord::default()
    }
}

/// Has calls counted as requests of the other doors are.
fn counting(metrics: &DoorMetrics, audit: Option<LineLog>) -> Watch {
    let verbs = PROCEDURES.map(|name| metrics.verb(name));
    let observer = Arc::clone(metrics.all().observer());
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
    let audit = audit.map(|log| Arc::new(move |ran| log.note(recorded(ran))) as _);
    Watch { begin: Arc::new(move || observer.begin_alone()), end: Arc::new(end), audit }
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
