//! Accepts connections.

use std::net::IpAddr;
use std::sync::Arc;

use cairn_auth::Network;
use cairn_base::Party;
use cairn_base::accept::pause_after;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::converse;
use crate::datagrams;
use crate::desk::Desk;
use crate::limits::DRAIN;
use crate::parties::PartyAmounts;

/// Settings of the listeners.
#[derive(Clone, Debug)]
pub struct Options {
    /// Networks of clients: nobody else is answered. Each export restricts its clients further.
    pub clients: Arc<[Network]>,
    /// Number of connections at the same time. One address, or /64 of IPv6, has a quarter of them
    /// at most.
    pub connections: usize,
}

/// The door's sockets: all listeners take NFS, MOUNT and the portmapper; datagrams are for the
/// latter two.
pub struct Sockets {
    pub listeners: Vec<TcpListener>,
    pub datagrams: Vec<UdpSocket>,
}

/// Serves until `stopped` is true, or its sender is dropped. All written bytes are durable when
/// this returns.
pub async fn serve(
    sockets: Sockets,
    desk: Arc<Desk>,
    options: Options,
    stopped: watch::Receiver<bool>,
) {
    let sweeping = tokio::spawn(Desk::sweep(Arc::downgrade(&desk)));
    for socket in sockets.datagrams {
        let clients = Arc::clone(&options.clients);
        tokio::spawn(datagrams::serve(socket, Arc::clone(&desk), clients, stopped.clone()));
    }
    let slots = Arc::new(Semaphore::new(options.connections));
    let connected = Arc::clone(&desk.load.connected);
    let mut taking = JoinSet::new();
    for listener in sockets.listeners {
        let (slots, connected) = (Arc::clone(&slots), Arc::clone(&connected));
        let (desk, options) = (Arc::clone(&desk), options.clone());
        taking.spawn(take(listener, desk, options, slots, connected, stopped.clone()));
    }
    while taking.join_next().await.is_some() {}
    let all = u32::try_from(options.connections).unwrap_or(u32::MAX);
    if timeout(2 * DRAIN, slots.acquire_many(all)).await.is_err() {
        tracing::warn!("calls still in progress");
    }
    sweeping.abort();
    desk.close().await;
}

/// Accepts connections until `stopped`.
async fn take(
    listener: TcpListener,
    desk: Arc<Desk>,
    options: Options,
    slots: Arc<Semaphore>,
    connected: Arc<PartyAmounts>,
    mut stopped: watch::Receiver<bool>,
) {
    let most = options.connections.div_ceil(4);
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = accept(&listener, &slots, &options.clients) => accepted,
        };
        let Some((stream, address, slot)) = accepted else { break };
        let Some(counted) = connected.one(Party::at(address), most) else {
            tracing::debug!(%address, "a connection too many was closed");
            continue;
        };
        let (desk, stopped) = (Arc::clone(&desk), stopped.clone());
        tokio::spawn(async move {
            let place = Arc::new((slot, counted));
            let _ = stream.set_nodelay(true);
            let (reader, writer) = stream.into_split();
            let served = converse(reader, writer, address, place, desk, stopped).await;
            if let Err(error) = served {
                tracing::debug!(%address, %error, "a connection ended");
            }
        });
    }
}

/// Returns the next connection of a client, once there is a slot for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    clients: &[Network],
) -> Option<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let ip = address.ip().to_canonical();
                if clients.iter().any(|network| network.contains(ip)) {
                    return Some((stream, ip, slot));
                }
                tracing::debug!(%address, "a connection from outside of the networks was closed");
            }
            Err(error) => {
                if let Some(pause) = pause_after(&error) {
                    tracing::warn!(%error, "accepting connections");
                    sleep(pause).await;
                }
            }
        }
    }
}
