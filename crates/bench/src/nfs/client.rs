//! A client of NFS version 3, as simple as can be: it remembers nothing, and has as many calls in
//! progress as its caller wants.

use std::fmt::{self, Display};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::error::{Error, Result};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const VERSION: u32 = 3;
const PORT: u16 = 2049;
/// Time after which a server counts as not answering.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest reply, bytes.
const REPLY_BYTES: usize = 4 << 20;
const READ_BYTES: usize = 256 << 10;
/// Longest handle, bytes.
const HANDLE_BYTES: usize = 64;
/// Flag of the last fragment of a record.
const LAST: u32 = 1 << 31;
/// Length of a file's attributes.
const ATTRIBUTES_BYTES: usize = 84;
/// Length of a file's attributes before a change.
const BEFORE_BYTES: usize = 24;

pub const GETATTR: u32 = 1;
pub const LOOKUP: u32 = 3;
pub const ACCESS: u32 = 4;
pub const READ: u32 = 6;
pub const WRITE: u32 = 7;
pub const CREATE: u32 = 8;
pub const MKDIR: u32 = 9;
pub const REMOVE: u32 = 12;
pub const RMDIR: u32 = 13;
pub const COMMIT: u32 = 21;
pub const UNSTABLE: u32 = 0;
pub const FILE_SYNC: u32 = 2;

pub type Handle = Vec<u8>;

/// An export and its address: `nfs://HOST/PATH?nfsport=N&mountport=N`, as in libnfs.
#[derive(Clone, PartialEq, Debug)]
pub struct Export {
    host: String,
    port: u16,
    mount_port: u16,
    path: String,
}

impl Export {
    pub fn parse(text: &str) -> Result<Export> {
        let wrong =
            || Error::usage(format!("{text:?}: write nfs://HOST/PATH?nfsport=2049&mountport=2049"));
        let rest = text.strip_prefix("nfs://").ok_or_else(wrong)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = place.split_once('/').ok_or_else(wrong)?;
        if host.is_empty() || path.is_empty() {
            return Err(wrong());
        }
        let path = format!("/{}", path.trim_end_matches('/'));
        let mut export = Export { host: host.to_owned(), port: PORT, mount_port: PORT, path };
        let mut mount_port = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            let value = value.parse().map_err(|_| wrong())?;
            match name {
                "nfsport" => export.port = value,
                "mountport" => mount_port = Some(value),
                _ => return Err(wrong()),
            }
        }
        export.mount_port = mount_port.unwrap_or(export.port);
        Ok(export)
    }

    /// Returns the handle of its top directory.
    pub fn mount(&self) -> Result<Handle> {
        let mut connection = Connection::to(self, self.mount_port, MOUNT)?;
        let mut reply = connection.ask(1, |call| bytes(call, self.path.as_bytes()))?;
        reply.status("MOUNT")?;
        reply.handle()
    }

    pub fn connect(&self) -> Result<Connection> {
        Connection::to(self, self.port, NFS)
    }
}

impl Display for Export {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Export { host, port, mount_port, path } = self;
        write!(out, "nfs://{host}{path}?nfsport={port}&mountport={mount_port}")
    }
}

pub fn number(call: &mut Vec<u8>, number: u32) {
    call.extend(number.to_be_bytes());
}

pub fn long(call: &mut Vec<u8>, number: u64) {
    call.extend(number.to_be_bytes());
}

pub fn bytes(call: &mut Vec<u8>, bytes: &[u8]) {
    number(call, bytes.len() as u32);
    call.extend(bytes);
    let padded = call.len() + bytes.len().next_multiple_of(4) - bytes.len();
    call.resize(padded, 0);
}

/// Sets a mode and nothing else.
pub fn mode(call: &mut Vec<u8>, mode: u32) {
    [1, mode, 0, 0, 0, 0, 0].iter().for_each(|part| number(call, *part));
}

/// Part of a reply after its head.
pub struct Reply<'a>(&'a [u8]);

impl<'a> Reply<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(nonsense)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn number(&mut self) -> Result<u32> {
        let taken = self.take(4)?;
        taken.try_into().map(u32::from_be_bytes).map_err(|_| nonsense())
    }

    /// Fails unless the status is success.
    pub fn status(&mut self, what: &str) -> Result<()> {
        match self.number()? {
            0 => Ok(()),
            status => Err(Error::failed(format!("{what}: the server says {status}"))),
        }
    }

    pub fn handle(&mut self) -> Result<Handle> {
        let len = self.number()? as usize;
        if len > HANDLE_BYTES {
            return Err(nonsense());
        }
        self.take(len.next_multiple_of(4)).map(|taken| taken.get(..len).unwrap_or(taken).to_vec())
    }

    pub fn attributes(&mut self) -> Result<()> {
        let is_there = self.number()? == 1;
        if is_there { self.take(ATTRIBUTES_BYTES).map(drop) } else { Ok(()) }
    }

    pub fn around(&mut self) -> Result<()> {
        if self.number()? == 1 {
            self.take(BEFORE_BYTES)?;
        }
        self.attributes()
    }
}

fn nonsense() -> Error {
    Error::failed("the server sent a reply that cannot be read")
}

/// A connection to one program of a server.
pub struct Connection {
    stream: TcpStream,
    program: u32,
    xid: u32,
    credentials: Vec<u8>,
    /// Calls that are not sent yet.
    going: Vec<u8>,
    /// Received bytes, from `read` to the end.
    came: Vec<u8>,
    read: usize,
    end: usize,
}

impl Connection {
    fn to(export: &Export, port: u16, program: u32) -> Result<Connection> {
        let address = (export.host.as_str(), port);
        let failed = |error| Error::failed(format!("{}:{port}: {error}", export.host));
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        // A server may take a call for an earlier one with the same number.
        let xid = stream.local_addr().map_err(failed)?.port();
        let mut credentials = Vec::new();
        number(&mut credentials, 0);
        bytes(&mut credentials, b"bench");
        [0, 0, 0].iter().for_each(|part| number(&mut credentials, *part));
        Ok(Connection {
            stream,
            program,
            xid: (u32::from(xid) << 16) ^ std::process::id(),
            credentials,
            going: Vec::new(),
            came: vec![0; READ_BYTES],
            read: 0,
            end: 0,
        })
    }

    /// Adds a call to be sent. Returns its number.
    pub fn add(&mut self, procedure: u32, arguments: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        let mark = self.going.len();
        let call = &mut self.going;
        for part in [0, self.xid, 0, 2, self.program, VERSION, procedure, 1] {
            number(call, part);
        }
        bytes(call, &self.credentials);
        [0, 0].iter().for_each(|part| number(call, *part));
        arguments(call);
        let len = (call.len() - mark - 4) as u32 | LAST;
        if let Some(place) = call.get_mut(mark..mark + 4) {
            place.copy_from_slice(&len.to_be_bytes());
        }
        self.xid
    }

    /// Sends the calls that were added.
    pub fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.going);
        self.going.clear();
        sent.map_err(|error| Error::failed(format!("a call could not be sent: {error}")))
    }

    /// Returns true if a whole reply has arrived.
    pub fn has_reply(&self) -> bool {
        self.whole().is_ok_and(|len| len.is_some())
    }

    /// Returns the length of the next reply, if all of it has arrived.
    fn whole(&self) -> Result<Option<usize>> {
        let came = self.came.get(self.read..self.end).unwrap_or_default();
        let Some(mark) = came.first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*mark);
        let bytes = (len & !LAST) as usize;
        if len & LAST == 0 || bytes > REPLY_BYTES {
            return Err(nonsense());
        }
        Ok((came.len() >= bytes + 4).then_some(bytes))
    }

    /// Returns the next reply: the number of its call, and its content.
    pub fn receive(&mut self) -> Result<(u32, Reply<'_>)> {
        let len = loop {
            match self.whole()? {
                Some(len) => break len,
                None => self.more()?,
            }
        };
        let from = self.read + 4;
        self.read = from + len;
        let mut reply = Reply(self.came.get(from..from + len).unwrap_or_default());
        let xid = reply.number()?;
        for expected in [1, 0, 0] {
            if reply.number()? != expected {
                return Err(Error::failed("the server refuses a call"));
            }
        }
        let verifier = reply.number()? as usize;
        reply.take(verifier)?;
        match reply.number()? {
            0 => Ok((xid, reply)),
            why => Err(Error::failed(format!("the server does not know a call: {why}"))),
        }
    }

    fn more(&mut self) -> Result<()> {
        if self.came.len() - self.end < READ_BYTES {
            self.came.copy_within(self.read..self.end, 0);
            (self.read, self.end) = (0, self.end - self.read);
            if self.came.len() - self.end < READ_BYTES {
                self.came.resize(self.came.len() * 2, 0);
            }
        }
        let room = self.came.get_mut(self.end..).unwrap_or_default();
        let came = self.stream.read(room);
        match came.map_err(|error| Error::failed(format!("no reply: {error}")))? {
            0 => Err(Error::failed("the server has ended the connection")),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }

    /// Sends one call and waits for its reply.
    pub fn ask(
        &mut self,
        procedure: u32,
        arguments: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Reply<'_>> {
        self.add(procedure, arguments);
        self.flush()?;
        self.receive().map(|(_, reply)| reply)
    }

    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Result<Handle> {
        let mut reply = self.ask(LOOKUP, |call| write_name(call, directory, name))?;
        reply.status(name)?;
        reply.handle()
    }

    /// Sends a CREATE of a file that must not exist, or a MKDIR.
    pub fn make(&mut self, procedure: u32, directory: &[u8], name: &str) -> Result<Handle> {
        let mut reply = self.ask(procedure, |call| write_make(call, procedure, directory, name))?;
        reply.status(name)?;
        match reply.number()? {
            1 => reply.handle(),
            _ => self.lookup(directory, name),
        }
    }

    /// Sends a REMOVE or RMDIR.
    pub fn remove(&mut self, procedure: u32, directory: &[u8], name: &str) -> Result<()> {
        let mut reply = self.ask(procedure, |call| write_name(call, directory, name))?;
        reply.status(name)
    }

    /// Writes `data`, which is durable afterwards.
    pub fn write(&mut self, file: &[u8], data: &[u8]) -> Result<()> {
        let mut reply = self.ask(WRITE, |call| write_write(call, file, 0, data, FILE_SYNC))?;
        reply.status("WRITE")
    }
}

/// Makes the calls of Linux' client for a file that it reads for the first time.
pub fn read_first(
    connection: &mut Connection,
    directory: &[u8],
    name: &str,
    size: u32,
) -> Result<Handle> {
    const MAY_READ: u32 = 1;
    let file = connection.lookup(directory, name)?;
    let mut reply = connection.ask(ACCESS, |call| {
        bytes(call, &file);
        number(call, MAY_READ);
    })?;
    reply.status("ACCESS")?;
    let mut reply = connection.ask(READ, |call| write_read(call, &file, 0, size))?;
    reply.status("READ")?;
    reply.attributes()?;
    match reply.number()? {
        count if count == size => Ok(file),
        count => Err(Error::failed(format!("{name}: {count} bytes instead of {size}"))),
    }
}

/// Makes the call of Linux' client for a file that it opens again.
pub fn open_again(connection: &mut Connection, file: &[u8]) -> Result<()> {
    connection.ask(GETATTR, |call| bytes(call, file))?.status("GETATTR")
}

pub fn write_name(call: &mut Vec<u8>, directory: &[u8], name: &str) {
    bytes(call, directory);
    bytes(call, name.as_bytes());
}

pub fn write_make(call: &mut Vec<u8>, procedure: u32, directory: &[u8], name: &str) {
    const GUARDED: u32 = 1;
    write_name(call, directory, name);
    if procedure == CREATE {
        number(call, GUARDED);
    }
    mode(call, if procedure == CREATE { 0o644 } else { 0o755 });
}

pub fn write_read(call: &mut Vec<u8>, file: &[u8], offset: u64, count: u32) {
    bytes(call, file);
    long(call, offset);
    number(call, count);
}

pub fn write_write(call: &mut Vec<u8>, file: &[u8], offset: u64, data: &[u8], how: u32) {
    bytes(call, file);
    long(call, offset);
    number(call, data.len() as u32);
    number(call, how);
    bytes(call, data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_and_shown() {
        let export = Export::parse("nfs://host/photos/2026/?nfsport=7&mountport=8").unwrap();
        let shown = "nfs://host/photos/2026?nfsport=7&mountport=8";
        assert_eq!(export.to_string(), shown);
        assert_eq!(Export::parse(shown).unwrap(), export);
        assert_eq!(Export::parse("nfs://h/x?nfsport=7").unwrap().mount_port, 7);
        assert_eq!(Export::parse("nfs://h/x").unwrap().port, PORT);
        for wrong in
            ["http://h/x", "nfs://h", "nfs:///x", "nfs://h/x?port=1", "nfs://h/x?nfsport=x"]
        {
            assert!(Export::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn replies_that_are_none_are_errors() {
        assert!(Reply(&[0, 0, 0]).number().is_err());
        assert!(Reply(&[0, 0, 1, 0, 0, 0]).handle().is_err());
        assert!(Reply(&[0, 0, 0, 1, 0]).attributes().is_err());
        assert!(Reply(&[0, 0, 0, 0]).attributes().is_ok());
    }
}
