//! Connections of syslog: what holds places or memory and does not go on is ended.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cairn_doors::serve::listen;
use cairn_logs::{Intake, Options, Protocol};
use tokio::sync::watch;

use crate::http_harness::{PATIENCE, Server};

/// A door of syslog beside a server, which waits so long for a message.
fn start(server: &Server, patience: Duration) -> (SocketAddr, Arc<Intake>, watch::Sender<bool>) {
    let intake = Arc::new(Intake::new(server.fs().clone()));
    let (stop, stopped) = watch::channel(false);
    let (user, serving) = ("root".to_owned(), Arc::clone(&intake));
    let options = Options { user, clients: None, tls: None, connections: 16, patience };
    let address = server.runtime.block_on(async {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(cairn_logs::serve(listener, serving, options, stopped));
        address
    });
    (address, intake, stop)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn lost(intake: &Intake) -> u64 {
    let all = intake.counts().read();
    let of = |(protocol, outcome, _): &&(&str, &str, u64)| {
        (*protocol, *outcome) == (Protocol::Syslog.name(), "lost")
    };
    all.iter().find(of).map_or(0, |(.., count)| *count)
}

#[test]
fn a_sender_that_stops_within_a_message_is_closed() {
    let server = Server::start();
    let (address, intake, _stop) = start(&server, Duration::from_millis(100));
    let starts: [&[u8]; 3] =
        [b"<13>1 - box - - - - whole\n<13>1 - box - - - - ha", b"100 <13>", b"9"];
    for (number, bytes) in starts.into_iter().enumerate() {
        let mut sender = connect(address);
        sender.write_all(bytes).unwrap();
        assert_eq!(sender.read(&mut [0; 1]).unwrap(), 0, "it is closed");
        assert_eq!(lost(&intake), number as u64 + 1);
    }
    let text = server.log.text();
    assert!(text.contains("did not come whole in time"), "{text}");
}

#[test]
fn a_sender_that_is_slow_with_whole_messages_stays() {
    let server = Server::start();
    let (address, intake, _stop) = start(&server, PATIENCE);
    let mut sender = connect(address);
    let line = b"<13>1 - box - - - - it works\n";
    for bytes in line.chunks(3).chain(line.chunks(7)) {
        sender.write_all(bytes).unwrap();
    }
    drop(sender);
    let count = intake.counts().of(Protocol::Syslog);
    let begun = std::time::Instant::now();
    while count.accepted.load(std::sync::atomic::Ordering::Relaxed) < 2 {
        assert!(begun.elapsed() < PATIENCE, "they come");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(lost(&intake), 0);
}
