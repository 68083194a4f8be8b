//! Loads of NFS: calls over several connections, each with several calls in progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::client::{
    COMMIT, CREATE, Connection, Export, GETATTR, Handle, LOOKUP, MKDIR, READ, REMOVE, RMDIR, Reply,
    UNSTABLE, WRITE, bytes, long, number, write_make, write_name, write_read, write_write,
};
use crate::closed_loop::noise;
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::load::{Sample, Tally};
use crate::stop;
use crate::values::human_size;

/// Uncounted run before a load, as a share of the load's time.
const WARM_UP: f64 = 0.25;
/// Bytes of a READ or WRITE of a stream.
const BLOCK: u32 = 1 << 20;
const STREAM: &str = "stream";
const REMOVED_AT_ONCE: usize = 32;

/// A kind of calls that is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Load {
    Getattr,
    Lookup,
    /// Reads whole files of a size.
    Read(u64),
    Create,
    StreamWrite,
    StreamRead,
}

impl Load {
    pub fn name(self) -> String {
        match self {
            Load::Getattr => "GETATTR".to_owned(),
            Load::Lookup => "LOOKUP".to_owned(),
            Load::Read(size) => format!("READ of {}", human_size(size)),
            Load::Create => "CREATE".to_owned(),
            Load::StreamWrite => "WRITE in sequence, and COMMIT".to_owned(),
            Load::StreamRead => "READ in sequence".to_owned(),
        }
    }
}

/// Amounts of files, bytes, time and calls.
#[derive(Clone, Debug)]
pub struct Amounts {
    /// Files that are looked up and read.
    pub files: usize,
    pub sizes: Vec<u64>,
    pub stream: u64,
    pub duration: Duration,
    /// Calls in progress on each connection.
    pub in_flight: usize,
}

/// A server, and the files that were made on it.
pub struct Server {
    export: Export,
    top: Handle,
    directory: Handle,
    name: String,
    /// Names and handles of files, by size.
    files: Vec<(u64, Vec<(String, Handle)>)>,
    stream: Handle,
    created: AtomicU64,
    pids: Vec<u32>,
}

impl Server {
    /// Makes files in a separate directory.
    pub fn prepare(export: Export, amounts: &Amounts, pids: Vec<u32>) -> Result<Server> {
        let top = export.mount()?;
        let mut connection = export.connect()?;
        let name = format!("cairn-bench-{}", std::process::id());
        let directory = connection.make(MKDIR, &top, &name)?;
        let mut server = Server {
            export,
            top,
            directory,
            name,
            files: Vec::new(),
            stream: Vec::new(),
            created: AtomicU64::new(0),
            pids,
        };
        let made = server.make(&mut connection, amounts);
        match made {
            Ok(()) => Ok(server),
            Err(error) => {
                // The first error is the cause.
                let _ = server.remove();
                Err(error)
            }
        }
    }

    fn make(&mut self, connection: &mut Connection, amounts: &Amounts) -> Result<()> {
        for &size in &amounts.sizes {
            self.files.push((size, Vec::new()));
            let data = noise(size as usize);
            for number in 0..amounts.files {
                if stop::is_stopped() {
                    return Err(Error::failed("stopped by a signal"));
                }
                let name = format!("{size}-{number}");
                let handle = connection.make(CREATE, &self.directory, &name)?;
                connection.write(&handle, &data)?;
                if let Some((_, files)) = self.files.last_mut() {
                    files.push((name, handle));
                }
            }
        }
        self.stream = connection.make(CREATE, &self.directory, STREAM)?;
        Ok(())
    }

    /// Removes the files that the loads have created.
    pub fn remove(&self) -> Result<()> {
        let mut connection = self.export.connect()?;
        let created = 0..self.created.load(Ordering::Relaxed);
        let mut names: Vec<String> = created.map(|number| format!("new-{number}")).collect();
        names.extend(
            self.files.iter().flat_map(|(_, all)| all.iter().map(|(name, _)| name.clone())),
        );
        if !self.stream.is_empty() {
            names.push(STREAM.to_owned());
        }
        // The last requested file may not have been made: the content of the reply does not matter.
        for some in names.chunks(REMOVED_AT_ONCE) {
            for name in some {
                connection.add(REMOVE, |call| write_name(call, &self.directory, name));
            }
            connection.flush()?;
            for _ in some {
                connection.receive()?;
            }
        }
        connection.remove(RMDIR, &self.top, &self.name)
    }

    /// Runs a load over `connections` connections.
    pub fn run(&self, load: Load, amounts: &Amounts, connections: usize) -> Result<Sample> {
        let opened: Result<Vec<Connection>> =
            (0..connections).map(|_| self.export.connect()).collect();
        let data = if load == Load::StreamWrite { noise(BLOCK as usize) } else { Vec::new() };
        let is_stream = matches!(load, Load::StreamRead | Load::StreamWrite);
        let warm_up = if is_stream { Duration::ZERO } else { amounts.duration.mul_f64(WARM_UP) };
        let began = Instant::now() + warm_up;
        let run = Run {
            server: self,
            load,
            amounts,
            data,
            began,
            until: (!is_stream).then(|| began + amounts.duration),
            next: AtomicU64::new(0),
            broken: Mutex::new(None),
        };
        let (client, server) = (Processes::this(), Processes::of(&self.pids));
        let (mut marks, mut tally) = ((client.mark(), server.mark()), Tally::default());
        let shared = &run;
        thread::scope(|scope| {
            let spawn = |connection| scope.spawn(move || shared.work(connection));
            let threads: Vec<_> = opened?.into_iter().map(spawn).collect();
            thread::sleep(began.saturating_duration_since(Instant::now()));
            marks = (client.mark(), server.mark());
            for thread in threads {
                let one = thread.join();
                tally.add(&one.map_err(|_| Error::failed("a thread of the client panicked"))?);
            }
            Ok::<_, Error>(())
        })?;
        let broken = run.broken.lock().take();
        let passed = began.elapsed();
        let seconds = if is_stream { passed } else { passed.min(amounts.duration) };
        Ok(Sample {
            began,
            seconds: seconds.as_secs_f64().max(1e-9),
            asked: run.next.load(Ordering::Relaxed),
            unsent: 0,
            client_cores: client.cores_since(&marks.0),
            server_cores: (!self.pids.is_empty()).then(|| server.cores_since(&marks.1)),
            tally,
            broken,
        })
    }
}

/// A running load.
struct Run<'a> {
    server: &'a Server,
    load: Load,
    amounts: &'a Amounts,
    data: Vec<u8>,
    /// Time at which counting begins.
    began: Instant,
    /// Time at which it ends; a stream ends with its last byte.
    until: Option<Instant>,
    next: AtomicU64,
    broken: Mutex<Option<String>>,
}

impl Run<'_> {
    fn work(&self, mut connection: Connection) -> Tally {
        let mut tally = Tally::default();
        if let Err(error) = self.converse(&mut connection, &mut tally) {
            self.broken.lock().get_or_insert(error.to_string());
        }
        tally
    }

    fn converse(&self, connection: &mut Connection, tally: &mut Tally) -> Result<()> {
        let mut under_way: Vec<(u32, Instant)> = Vec::with_capacity(self.amounts.in_flight);
        let mut is_over = false;
        loop {
            let now = Instant::now();
            is_over |= stop::is_stopped() || self.until.is_some_and(|until| now >= until);
            while !is_over && under_way.len() < self.amounts.in_flight {
                match self.add(connection) {
                    Some(xid) => under_way.push((xid, now)),
                    None => is_over = true,
                }
            }
            if under_way.is_empty() {
                break;
            }
            connection.flush()?;
            // Waits for one reply, and takes all that have arrived with it.
            loop {
                let (xid, reply) = connection.receive()?;
                let bytes = self.check(reply)?;
                let at = under_way.iter().position(|(known, _)| *known == xid);
                let at = at.ok_or_else(|| Error::failed("a reply to no call"))?;
                let (_, begun) = under_way.swap_remove(at);
                self.count(tally, begun, bytes);
                if under_way.is_empty() || !connection.has_reply() {
                    break;
                }
            }
        }
        match self.load {
            Load::StreamWrite => {
                let mut reply = connection.ask(COMMIT, |call| {
                    bytes(call, &self.server.stream);
                    long(call, 0);
                    number(call, 0);
                })?;
                reply.status("COMMIT")
            }
            _ => Ok(()),
        }
    }

    fn count(&self, tally: &mut Tally, begun: Instant, bytes: u64) {
        let now = Instant::now();
        if begun >= self.began {
            tally.latency.record(now.duration_since(begun));
        }
        if now >= self.began && self.until.is_none_or(|until| now < until) {
            tally.in_time += 1;
            tally.bytes_in_time += bytes;
        }
    }

    fn files(&self, size: Option<u64>) -> &[(String, Handle)] {
        let mut all = self.server.files.iter();
        let found = all.find(|(known, _)| size.is_none_or(|size| *known == size));
        found.map_or(&[], |(_, files)| files)
    }

    /// Adds the next call; none if there are no more.
    fn add(&self, connection: &mut Connection) -> Option<u32> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let pick = |size| {
            let files = self.files(size);
            files.get((next % (files.len() as u64).max(1)) as usize)
        };
        let directory = &self.server.directory;
        let offset = next * u64::from(BLOCK);
        let is_within = offset + u64::from(BLOCK) <= self.amounts.stream;
        match self.load {
            Load::Getattr => {
                let (_, handle) = pick(None)?;
                Some(connection.add(GETATTR, |call| bytes(call, handle)))
            }
            Load::Lookup => {
                let (name, _) = pick(None)?;
                Some(connection.add(LOOKUP, |call| write_name(call, directory, name)))
            }
            Load::Read(size) => {
                let (_, handle) = pick(Some(size))?;
                Some(connection.add(READ, |call| write_read(call, handle, 0, size as u32)))
            }
            Load::Create => {
                let number = self.server.created.fetch_add(1, Ordering::Relaxed);
                let name = format!("new-{number}");
                Some(connection.add(CREATE, |call| write_make(call, CREATE, directory, &name)))
            }
            Load::StreamWrite => is_within.then(|| {
                let write = |call: &mut Vec<u8>| {
                    write_write(call, &self.server.stream, offset, &self.data, UNSTABLE);
                };
                connection.add(WRITE, write)
            }),
            Load::StreamRead => is_within.then(|| {
                let read = |call: &mut Vec<u8>| {
                    write_read(call, &self.server.stream, offset, BLOCK);
                };
                connection.add(READ, read)
            }),
        }
    }

    /// Returns the number of bytes of a reply, which must be complete.
    fn check(&self, mut reply: Reply) -> Result<u64> {
        reply.status(&self.load.name())?;
        let expected = match self.load {
            Load::Read(size) => size,
            Load::StreamRead | Load::StreamWrite => u64::from(BLOCK),
            _ => return Ok(0),
        };
        match self.load {
            Load::StreamWrite => reply.around()?,
            _ => reply.attributes()?,
        }
        let bytes = u64::from(reply.number()?);
        if bytes == expected {
            Ok(bytes)
        } else {
            Err(Error::failed(format!("{bytes} bytes came instead of {expected}")))
        }
    }
}
