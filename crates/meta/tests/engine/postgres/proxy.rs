//! A network between engine and server that breaks at planned points.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Message that ends a snapshot. Nobody waits for its answer, so a message from before a plan may
/// arrive after the plan.
const UNAWAITED: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// The fate of one connection: the next one through which something is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    Nothing,
    /// Cut after this many bytes towards the server, when another would pass.
    CutToServer(usize),
    /// Cut after this many bytes towards the client, when another would pass.
    CutToClient(usize),
    /// Keep the next request of the client, and cut the client off.
    Keep,
}

/// The request that was kept of one connection.
struct Kept {
    connection: usize,
    server: TcpStream,
    sent: Vec<u8>,
    /// The bytes of the server until it has no more to say.
    answer: Vec<u8>,
    ended: bool,
}

struct ProxyState {
    plan: Plan,
    /// The connection the plan is for, once that is known.
    planned: Option<usize>,
    fired: bool,
    kept: Option<Kept>,
}

struct ProxyShared {
    state: Mutex<ProxyState>,
    changed: Condvar,
}

pub struct Proxy {
    port: u16,
    shared: Arc<ProxyShared>,
}

impl Proxy {
    pub fn new(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state =
            Mutex::new(ProxyState { plan: Plan::Nothing, planned: None, fired: false, kept: None });
        let shared = Arc::new(ProxyShared { state, changed: Condvar::new() });
        let proxy = Proxy { port, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().flatten().enumerate() {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    serve(&shared, connection, &client, &server);
                }
            }
        });
        proxy
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn plan(&self, plan: Plan) {
        let mut state = self.shared.state.lock();
        state.plan = plan;
        state.planned = None;
        state.fired = false;
    }

    /// Nothing more happens. Returns whether it had.
    pub fn settle(&self) -> bool {
        let mut state = self.shared.state.lock();
        state.plan = Plan::Nothing;
        state.fired
    }

    /// Lets go what was kept, and returns what the server answers.
    pub fn release(&self) -> String {
        let mut state = self.shared.state.lock();
        let kept = state.kept.as_mut().expect("something was kept");
        kept.server.write_all(&kept.sent).unwrap();
        kept.server.shutdown(Shutdown::Write).unwrap();
        while state.kept.as_ref().is_some_and(|kept| !kept.ended) {
            self.shared.changed.wait(&mut state);
        }
        let kept = state.kept.take().expect("it is still there");
        String::from_utf8_lossy(&kept.answer).into_owned()
    }
}

fn serve(shared: &Arc<ProxyShared>, connection: usize, client: &TcpStream, server: &TcpStream) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let both = || (client.try_clone().unwrap(), server.try_clone().unwrap());
    let ((client, server), (client_too, server_too)) = (both(), both());
    let (shared, shared_too) = (Arc::clone(shared), Arc::clone(shared));
    std::thread::spawn(move || pass_to_server(&shared, connection, client, server));
    std::thread::spawn(move || pass_to_client(&shared_too, connection, client_too, server_too));
}

impl ProxyState {
    /// Returns how many of `length` bytes may pass.
    fn room(&mut self, connection: usize, to_server: bool, length: usize) -> usize {
        if to_server {
            self.planned.get_or_insert(connection);
        }
        let room = match &mut self.plan {
            _ if self.planned != Some(connection) => return length,
            Plan::CutToServer(room) if to_server => room,
            Plan::CutToClient(room) if !to_server => room,
            _ => return length,
        };
        let passed = length.min(*room);
        *room -= passed;
        if passed < length {
            self.plan = Plan::Nothing;
            self.fired = true;
        }
        passed
    }
}

fn pass_to_server(
    shared: &ProxyShared,
    connection: usize,
    mut client: TcpStream,
    mut server: TcpStream,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let mut state = shared.state.lock();
        if state.planned.is_none() && buffer[..length] == *UNAWAITED {
            drop(state);
            if server.write_all(UNAWAITED).is_err() {
                break;
            }
            continue;
        }
        if state.plan == Plan::Keep {
            let sent = buffer[..length].to_vec();
            state.kept = Some(Kept { connection, server, sent, answer: Vec::new(), ended: false });
            state.plan = Plan::Nothing;
            let _ = client.shutdown(Shutdown::Both);
            return;
        }
        let room = state.room(connection, true, length);
        drop(state);
        if server.write_all(&buffer[..room]).is_err() || room < length {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn pass_to_client(
    shared: &ProxyShared,
    connection: usize,
    mut client: TcpStream,
    mut server: TcpStream,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let mut state = shared.state.lock();
        if let Some(kept) = state.kept.as_mut().filter(|kept| kept.connection == connection) {
            kept.answer.extend(&buffer[..length]);
            continue;
        }
        let room = state.room(connection, false, length);
        drop(state);
        if client.write_all(&buffer[..room]).is_err() || room < length {
            break;
        }
    }
    let mut state = shared.state.lock();
    if let Some(kept) = state.kept.as_mut().filter(|kept| kept.connection == connection) {
        kept.ended = true;
        shared.changed.notify_all();
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}
