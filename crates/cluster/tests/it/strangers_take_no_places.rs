//! Connections that say nothing, or not all, keep no node waiting.

use std::sync::Arc;

use cairn_base::Role;
use cairn_cluster::limits::HANDSHAKES;
use cairn_cluster::wire::serve;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::{Cluster, GATEWAY, MASTER, SECOND, echo};

#[tokio::test]
async fn silent_strangers_are_in_nobodys_way() {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let listener = Arc::new(master.listener(None).await);
    let address = listener.local_address().unwrap().to_string();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(serve(listener, master.terms(), echo, SECOND, stopped));
    let mut strangers = Vec::new();
    for _ in 0..HANDSHAKES + 50 {
        strangers.push(TcpStream::connect(&address).await.unwrap());
    }
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    gateway.dial_and_call(&address).await.unwrap();
    // Strangers that begin a hello take places, but not for as long as others wait for them.
    for stranger in &mut strangers {
        stranger.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
    }
    while gateway.dial_and_call(&address).await.is_err() {}
}
