//! MOUNT and the portmapper by datagrams: some clients ask so for a port and a handle, and mount by
//! TCP.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Network;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::desk::{Client, Desk};
use crate::dispatch::{answer, is_for_datagrams};
use crate::limits::DATAGRAM_BYTES;
use crate::rpc::{Incoming, no_program, read};

/// Answers one after another until `stopped`.
pub async fn serve(
    socket: UdpSocket,
    desk: Arc<Desk>,
    clients: Arc<[Network]>,
    mut stopped: watch::Receiver<bool>,
) {
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
        let record = Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default());
        let reply = match read(record.clone()) {
            Ok(Incoming::Call(call)) if is_for_datagrams(&call) => {
                let client = Client::new(address, call.identity.clone());
                answer(Arc::clone(&desk), client, call, record).await
            }
            Ok(Incoming::Call(call)) => Some(no_program(call.xid)),
            Ok(Incoming::Refused(reply)) => Some(reply),
            Err(_) => None,
        };
        let Some(reply) = reply else { continue };
        // One that is lost is asked for again.
        let _ = socket.send_to(&reply.head, from).await;
    }
}
