//! MOUNT and the portmapper over datagrams: some clients use them to find a port and a handle, and
//! then connect by TCP.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Network;
use cairn_base::Party;
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, watch};

use crate::desk::{Client, Desk};
use crate::dispatch::{answer, is_for_datagrams};
use crate::limits::{DATAGRAM_BYTES, DATAGRAMS, DATAGRAMS_EACH};
use crate::parties::PartyAmounts;
use crate::rpc::{Incoming, Reply, no_program, read};

/// Answers datagrams until `stopped`. No call waits for the calls of other clients.
pub async fn serve(
    socket: UdpSocket,
    desk: Arc<Desk>,
    clients: Arc<[Network]>,
    mut stopped: watch::Receiver<bool>,
) {
    let (socket, parties) = (Arc::new(socket), Arc::new(PartyAmounts::default()));
    let slots = Arc::new(Semaphore::new(DATAGRAMS));
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        let Ok((len, from)) = received else { continue };
        let address = from.ip().to_canonical();
        if !clients.iter().any(|network| network.contains(address)) {
            continue;
        }
        // The client resends a call that is dropped here.
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let Some(one) = parties.one(Party::at(address), DATAGRAMS_EACH) else { continue };
        let record = Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default());
        let (socket, desk) = (Arc::clone(&socket), Arc::clone(&desk));
        tokio::spawn(async move {
            let _held = (slot, one);
            if let Some(reply) = reply(desk, from, record).await {
                // The client resends its call if the reply is lost.
                let _ = socket.send_to(&reply.head(), from).await;
            }
        });
    }
}

async fn reply(desk: Arc<Desk>, from: SocketAddr, record: Bytes) -> Option<Reply> {
    match read(record.clone()).ok()? {
        Incoming::Call(call) if is_for_datagrams(&call) => {
            let client = Client::new(from.ip().to_canonical(), call.identity.clone());
            answer(desk, client, call, record).await
        }
        Incoming::Call(call) => Some(no_program(call.xid)),
        Incoming::Refused(reply) => Some(reply),
    }
}
