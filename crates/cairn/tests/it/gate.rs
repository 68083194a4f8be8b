//! A proxy before a door. It stops requests that it knows, or cuts their connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::support::PATIENCE;

/// What is done with a request whose head has the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It waits until the gate is opened.
    Wait,
    /// Its connection is cut.
    Cut,
}

struct Passing {
    /// Requests with the text that go through before.
    free: usize,
    /// Requests with the text that are stopped or cut.
    stopped: usize,
    /// Requests that came here and were stopped or cut.
    came: usize,
}

struct Inner {
    text: Vec<u8>,
    door: String,
    act: Act,
    passing: Mutex<Passing>,
    changed: Condvar,
}

/// A gate before one door.
pub struct Gate {
    pub url: String,
    inner: Arc<Inner>,
}

impl Gate {
    /// Before the door at `url`: of the requests that have `text`, the first `free` go through and
    /// the next `stopped` do not.
    pub fn before(url: &str, text: &str, act: Act, (free, stopped): (usize, usize)) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            text: text.as_bytes().to_vec(),
            door: url.strip_prefix("http://").unwrap().to_owned(),
            act,
            passing: Mutex::new(Passing { free, stopped, came: 0 }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&inner);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let inner = Arc::clone(&of_thread);
                thread::spawn(move || inner.pass(client));
            }
        });
        Gate { url: format!("http://{own}"), inner }
    }

    /// Waits until so many requests were stopped or cut.
    pub fn reached(&self, count: usize) {
        let passing = self.inner.passing.lock().unwrap();
        let waited =
            self.inner.changed.wait_timeout_while(passing, PATIENCE, |one| one.came < count);
        assert!(!waited.unwrap().1.timed_out(), "no request came to the gate");
    }

    /// Lets all through.
    pub fn open(&self) {
        self.inner.passing.lock().unwrap().stopped = 0;
        self.inner.changed.notify_all();
    }
}

impl Inner {
    fn pass(&self, client: TcpStream) {
        let Ok(door) = TcpStream::connect(&self.door) else { return };
        let (mut from, mut to) = (client.try_clone().unwrap(), door.try_clone().unwrap());
        let back = thread::spawn(move || {
            let _ = std::io::copy(&mut &door, &mut &client);
            let _ = client.shutdown(Shutdown::Both);
        });
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read) = from.read(&mut buffer) {
            if read == 0 || !self.admits(&buffer[..read]) || to.write_all(&buffer[..read]).is_err()
            {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
        back.join().unwrap();
    }

    /// Whether the bytes may go on, when they may.
    fn admits(&self, bytes: &[u8]) -> bool {
        if !bytes.windows(self.text.len()).any(|window| window == self.text) {
            return true;
        }
        let mut passing = self.passing.lock().unwrap();
        if passing.free > 0 {
            passing.free -= 1;
            return true;
        }
        if passing.stopped == 0 {
            return true;
        }
        passing.came += 1;
        self.changed.notify_all();
        if self.act == Act::Cut {
            passing.stopped -= 1;
            return false;
        }
        let opened = self.changed.wait_while(passing, |one| one.stopped > 0);
        drop(opened.unwrap());
        true
    }
}
