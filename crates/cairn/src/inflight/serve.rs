//! A thread of each process that serves: it sends its requests in flight to each client of its
//! socket, and warns in the log about requests that have waited for long. It waits for no other
//! thread of the process.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cairn_base::accept::pause_after;
use cairn_base::{inflight, waits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::form::Report;
use super::place::Place;
use super::watch::Watch;

/// Interval of looks at the requests.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Kind of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Server,
    Master,
    Chunkserver,
    Gateway,
    Mount,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Master => "master",
            Role::Chunkserver => "chunkserver",
            Role::Gateway => "gateway",
            Role::Mount => "mount",
        }
    }
}

/// Serves the report of requests in flight until this is dropped.
#[derive(Debug)]
pub struct Serving {
    socket: Option<PathBuf>,
    ended: Arc<AtomicBool>,
}

impl Serving {
    /// Starts the thread. `of` is the directory of the process, which it has to itself, or its
    /// mount point without symbolic links. A process that cannot have its socket goes on without
    /// it, and logs that.
    pub fn start(role: Role, of: &Path) -> Serving {
        let place = match role {
            Role::Mount => Place::for_mount(of),
            _ => Ok(Place::of_directory(of)),
        };
        let listening = place.and_then(|place| Ok((place.listen()?, place.path())));
        let (listener, socket) = match listening {
            Ok((listener, socket)) => (Some(listener), Some(socket)),
            Err(error) => {
                tracing::warn!(%error, "cairn inflight cannot ask this process");
                (None, None)
            }
        };
        let ended = Arc::new(AtomicBool::new(false));
        let (is_over, shown) = (Arc::clone(&ended), of.display().to_string());
        let work = move || run(role, &shown, listener.as_ref(), &is_over);
        if let Err(error) = std::thread::Builder::new().name("cairn-inflight".into()).spawn(work) {
            tracing::warn!(%error, "nobody looks at what waits");
        }
        Serving { socket, ended }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn run(role: Role, of: &str, listener: Option<&UnixListener>, ended: &AtomicBool) {
    let mut watch = Watch::default();
    let mut looked = Instant::now();
    while !ended.load(Ordering::Relaxed) {
        let mut ready: Vec<PollFd<'_>> =
            listener.iter().map(|listener| PollFd::new(*listener, PollFlags::IN)).collect();
        let is_asked = poll(&mut ready, Some(&LOOK)).is_ok_and(|ready| ready > 0);
        if is_asked && let Some(listener) = listener {
            let accepted = listener.accept().map(|(stream, _)| stream);
            let report = || Report::new(role.name(), of, &inflight::seen());
            if let Some(pause) = answer(accepted, report) {
                std::thread::sleep(pause);
            }
        }
        if looked.elapsed() >= Duration::from_secs(1) {
            looked = Instant::now();
            watch.warn(&inflight::seen());
        }
    }
}

/// Answers an accepted client. Returns the pause after an error of accepting: the client still
/// waits then.
fn answer(accepted: io::Result<UnixStream>, report: impl FnOnce() -> Report) -> Option<Duration> {
    match accepted {
        Ok(stream) => {
            // An interrupted command needs no more of the report.
            let _ = tell(stream, &report());
            None
        }
        Err(error) => pause_after(&error),
    }
}

fn tell(mut stream: UnixStream, report: &Report) -> io::Result<()> {
    stream.set_write_timeout(Some(waits::INFLIGHT_TAKEN))?;
    let text = serde_json::to_vec(report)?;
    stream.write_all(&text)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn nobody_who_cannot_be_taken_is_looked_at_again_at_once() {
        let unasked = || unreachable!("nobody hears it");
        assert_eq!(answer(Err(Errno::MFILE.into()), unasked), Some(waits::ACCEPT_RETRY));
        assert_eq!(answer(Err(Errno::CONNABORTED.into()), unasked), None);
        let (own, mut other) = UnixStream::pair().unwrap();
        assert_eq!(answer(Ok(own), || Report::new("server", "/there", &[])), None);
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert!(text.contains("/there"), "{text}");
    }
}
