//! A network between a master and its database that can be closed: nothing passes, without an
//! error. Bytes that were sent meanwhile arrive when it is opened again.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct Passage {
    closed: Mutex<bool>,
    changed: Condvar,
}

pub struct Gate {
    port: u16,
    passage: Arc<Passage>,
}

impl Gate {
    pub fn new(server: u16) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let passage = Arc::new(Passage::default());
        let gate = Gate { port, passage: Arc::clone(&passage) };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    from.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let passage = Arc::clone(&passage);
                    std::thread::spawn(move || passage.pass(from, to));
                }
            }
        });
        gate
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn close(&self) {
        *self.passage.closed.lock() = true;
    }

    pub fn open(&self) {
        *self.passage.closed.lock() = false;
        self.passage.changed.notify_all();
    }
}

impl Passage {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let mut closed = self.closed.lock();
            while *closed {
                self.changed.wait(&mut closed);
            }
            drop(closed);
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
