//! The NFS door of a server or gateway.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cairn_audit::{Actor, AuditOutcome, AuditRecord, LineLog};
use cairn_auth::Network;
use cairn_base::rng::RealRng;
use cairn_doors::metrics::{DoorMetrics, counter_seconds, gauge};
use cairn_doors::serve;
use cairn_nfs::{
    Behaviour, CallRecord, Desk, ID, Options, Outcome, PROCEDURES, RPCBIND, Ran, Sockets, Watch,
};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use super::nfs_args::NfsArgs;
use crate::failure::{Failure, Result};
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "nfs", bind };

/// Connections at the same time, at most. A client has one, or some of them.
const CONNECTIONS: usize = 1024;
/// Port at which clients ask a portmapper.
const PORTMAP_PORT: u16 = 111;

/// Way by which clients that do not know the port find it.
enum Portmap {
    /// There is none: clients must know the port.
    None,
    Own(TcpSocket, UdpSocket),
    /// The rpcbind of this machine answers them.
    Rpcbind,
}

/// Sockets that are bound beside the first one, and networks of clients.
struct NfsOffer {
    datagrams: UdpSocket,
    portmap: Portmap,
    address: SocketAddr,
    clients: Arc<[Network]>,
    looks_up_groups: bool,
}

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    args.nfs.bind()
}

impl NfsArgs {
    /// Binds the door. Must be called within a runtime.
    fn bind(&self) -> Result<Option<Bound>> {
        let Some(address) = self.nfs else { return Ok(None) };
        let clients = self.clients(address)?;
        let (socket, datagrams) = bind_both(address).map_err(|error| failed(address, &error))?;
        let address = socket.local_addr()?;
        let portmap = self.bind_portmap(Path::new(RPCBIND))?;
        if self.nfs_groups {
            let asked = Command::new(ID).args(["-G", "--", "0"]).output();
            asked.map_err(|error| Failure::new(format!("--nfs-groups: program {ID}: {error}")))?;
        }
        if !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "the NFS door is reachable from other machines: it has neither passwords nor \
                 encryption, and any machine in a network of --nfs-client may claim any uid"
            );
        }
        let looks_up_groups = self.nfs_groups;
        let offered = NfsOffer { datagrams, portmap, address, clients, looks_up_groups };
        let serve = |listener, behind: &mut Behind<'_>| serve(listener, behind, offered);
        let (shown, pages) = (address.to_string(), Vec::new());
        Ok(Some(Bound { socket, shown, pages, is_optional: false, serve: Box::new(serve) }))
    }

    fn bind_portmap(&self, rpcbind: &Path) -> Result<Portmap> {
        let Some(portmap) = self.nfs_portmap else { return Ok(Portmap::None) };
        // The portmapper is as open as the door.
        self.clients(portmap)?;
        match bind_both(portmap) {
            Ok((socket, datagrams)) => Ok(Portmap::Own(socket, datagrams)),
            // Another process has the port, or the port is not for this user.
            Err(error)
                if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
                    && portmap.port() == PORTMAP_PORT
                    && rpcbind.exists() =>
            {
                Ok(Portmap::Rpcbind)
            }
            Err(error) => Err(failed(portmap, &error)),
        }
    }

    /// Returns the networks of clients.
    ///
    /// # Errors
    /// If any machine could connect, and the options do not allow that.
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

fn serve(listener: TcpListener, behind: &mut Behind<'_>, offered: NfsOffer) -> Result<DoorTask> {
    let NfsOffer { datagrams, portmap, address, clients, looks_up_groups } = offered;
    let mut sockets = Sockets { listeners: vec![listener], datagrams: vec![datagrams] };
    let mut registers = false;
    match portmap {
        Portmap::None => {}
        Portmap::Own(socket, datagrams) => {
            sockets.listeners.push(serve::begin(socket)?);
            sockets.datagrams.push(datagrams);
        }
        Portmap::Rpcbind => registers = true,
    }
    let missing = || Failure::new("the NFS door has no key for handles");
    let key = behind.offers.handles.take().ok_or_else(missing)?;
    let watch = counting(&behind.metrics.door(DOOR.name), behind.offers.records.audit().cloned());
    let runtime = tokio::runtime::Handle::current();
    let behaviour = Behaviour { port: address.port(), watch, looks_up_groups };
    let desk = Desk::new(behind.fs.clone(), key, &RealRng, runtime, behaviour);
    let load = Arc::clone(&desk.load);
    behind.metrics.count_more(Arc::new(move || {
        vec![
            gauge("nfs_clients", "Addresses with connections to the NFS door", load.clients()),
            gauge("nfs_connections", "Connections to the NFS door", load.connections()),
            counter_seconds(
                "nfs_full_seconds",
                "Time that connections had as many calls at work as one may",
                Duration::from_micros(load.full_us()),
            ),
        ]
    }));
    let connections = behind.serving.limits.connections.min(CONNECTIONS);
    let options = Options { clients, connections };
    let stopped = behind.stopped.clone();
    let serving = cairn_nfs::serve(sockets, desk, options, stopped.clone());
    Ok(Box::pin(async move {
        let registering = async {
            if registers {
                cairn_nfs::register(address, Path::new(RPCBIND), stopped).await;
            }
        };
        tokio::join!(serving, registering);
    }))
}

/// Binds sockets for streams and for datagrams, of one port.
fn bind_both(address: SocketAddr) -> io::Result<(TcpSocket, UdpSocket)> {
    let socket = serve::bind(address)?;
    let datagrams = std::net::UdpSocket::bind(socket.local_addr()?)?;
    datagrams.set_nonblocking(true)?;
    Ok((socket, UdpSocket::from_std(datagrams)?))
}

fn failed(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::address("NFS door", "--nfs", address, error)
}

/// Makes the audit's record of a call.
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

/// Makes a watch that counts calls like requests of the other doors.
fn counting(metrics: &DoorMetrics, audit: Option<LineLog>) -> Watch {
    let verbs = PROCEDURES.map(|name| metrics.verb(name));
    let observer = Arc::clone(metrics.all().observer());
    let end = move |ended: CallRecord| {
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
        NfsArgs { nfs, nfs_client, nfs_portmap: None, nfs_groups: false, nfs_any_client }
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
