//! The registration with the rpcbind of this machine (RFC 1833, version 4), from which clients then
//! learn the port of this door. For machines on which rpcbind has the port of the portmapper.
//!
//! A registration of another server is never changed: a registration is removed only if it names
//! the address of this door.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::portmap::{KNOWN, UDP};
use crate::record::LAST;
use crate::rpc::{call, result};
use crate::xdr::{Garbage, Reader, Writer};

/// Path of the socket at which rpcbind takes registrations.
pub const RPCBIND: &str = "/run/rpcbind.sock";

const PROGRAM: (u32, u32) = (100_000, 4);
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;

/// Period at which the registration is checked: rpcbind may have restarted.
const LOOK: Duration = Duration::from_secs(30);
/// Deadline for an answer of rpcbind.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a reply: all registrations of a machine.
const REPLY_BYTES: usize = 1 << 20;
/// Bytes of a text in a reply.
const TEXT_BYTES: usize = 1024;

/// A registration of a program at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Registration {
    program: u32,
    version: u32,
    /// The transport, such as `tcp6`.
    transport: String,
    /// The address in the form of rpcbind: the two bytes of the port come last.
    address: String,
}

impl Registration {
    /// Returns whether both registrations are for the same program, version and transport.
    fn is_for_the_same(&self, other: &Registration) -> bool {
        let of = |one: &Registration| (one.program, one.version, one.transport.clone());
        of(self) == of(other)
    }

    fn to_arguments(&self) -> Writer {
        let mut arguments = Writer::default();
        arguments.number(self.program).number(self.version);
        for text in [self.transport.as_str(), &self.address, ""] {
            arguments.bytes(text.as_bytes());
        }
        arguments
    }
}

/// Returns all registrations of a door at `address`.
fn wanted(address: SocketAddr) -> Vec<Registration> {
    let ip = address.ip().to_canonical();
    let mut families = vec![(ip, if ip.is_ipv6() { "6" } else { "" })];
    if ip.is_ipv6() && ip.is_unspecified() {
        // A socket at the unspecified address of IPv6 also takes IPv4.
        families.push((IpAddr::V4(Ipv4Addr::UNSPECIFIED), ""));
    }
    let [first, second] = address.port().to_be_bytes();
    let of = |(ip, family): (IpAddr, &str)| {
        let address = format!("{ip}.{first}.{second}");
        KNOWN.map(|[program, version, protocol]| Registration {
            program,
            version,
            transport: format!("{}{family}", if protocol == UDP { "udp" } else { "tcp" }),
            address: address.clone(),
        })
    };
    families.into_iter().flat_map(of).collect()
}

/// Keeps the door at `address` registered with the rpcbind at `socket` until `stopped`.
pub async fn register(address: SocketAddr, socket: &Path, mut stopped: watch::Receiver<bool>) {
    let wanted = wanted(address);
    let mut was_told = false;
    loop {
        match within(set(socket, &wanted)).await {
            Ok(new) => {
                if new > 0 {
                    tracing::info!(%address, "registered with rpcbind");
                }
                was_told = false;
            }
            Err(error) => {
                if !was_told {
                    tracing::error!(
                        %address, %error,
                        "not registered with rpcbind: clients must name the port (docs/nfs.md)"
                    );
                }
                was_told = true;
            }
        }
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            () = sleep(LOOK) => {}
        }
    }
    if let Err(error) = within(unset(socket, &wanted)).await {
        tracing::warn!(%address, %error, "still registered with rpcbind");
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "rpcbind does not answer")),
    }
}

/// Registers the programs that are not registered yet. Returns the number of new registrations.
async fn set(socket: &Path, wanted: &[Registration]) -> io::Result<usize> {
    let mut rpcbind = UnixStream::connect(socket).await?;
    let all = dump(&mut rpcbind).await?;
    let taken = |one: &&Registration| {
        wanted.iter().any(|wanted| wanted.is_for_the_same(one) && wanted.address != one.address)
    };
    if let Some(taken) = all.iter().find(taken) {
        let Registration { program, version, transport, address } = taken;
        return Err(io::Error::other(format!(
            "another server, at {address}, is registered: if there is none any more, run \
             rpcinfo -T {transport} -d {program} {version}"
        )));
    }
    let mut new = 0;
    for one in wanted.iter().filter(|one| !all.contains(one)) {
        if !ask(&mut rpcbind, SET, &one.to_arguments()).await?.flag().map_err(garbage)? {
            return Err(io::Error::other("rpcbind refuses the registration"));
        }
        new += 1;
    }
    Ok(new)
}

/// Removes the registrations of this door, and no others.
async fn unset(socket: &Path, wanted: &[Registration]) -> io::Result<()> {
    let mut rpcbind = UnixStream::connect(socket).await?;
    let all = dump(&mut rpcbind).await?;
    for one in wanted.iter().filter(|one| all.contains(one)) {
        ask(&mut rpcbind, UNSET, &one.to_arguments()).await?;
    }
    Ok(())
}

async fn dump(rpcbind: &mut UnixStream) -> io::Result<Vec<Registration>> {
    let reply = ask(rpcbind, DUMP, &Writer::default()).await?;
    read_all(reply).map_err(garbage)
}

fn read_all(mut reply: Reader) -> Result<Vec<Registration>, Garbage> {
    let mut all = Vec::new();
    let text = |reply: &mut Reader| -> Result<String, Garbage> {
        Ok(String::from_utf8_lossy(&reply.bytes(TEXT_BYTES)?).into_owned())
    };
    while reply.flag()? {
        let (program, version) = (reply.number()?, reply.number()?);
        let (transport, address) = (text(&mut reply)?, text(&mut reply)?);
        let _owner = text(&mut reply)?;
        all.push(Registration { program, version, transport, address });
    }
    Ok(all)
}

/// Calls rpcbind, and waits for the result. There is one call at a time.
async fn ask(rpcbind: &mut UnixStream, procedure: u32, arguments: &Writer) -> io::Result<Reader> {
    let (program, version) = PROGRAM;
    let mut whole = call(program, version, procedure);
    whole.append(arguments);
    let whole = whole.finish();
    let mark = LAST | u32::try_from(whole.len()).unwrap_or(0);
    rpcbind.write_all(&[&mark.to_be_bytes()[..], &whole].concat()).await?;
    let mut reply = Vec::new();
    loop {
        let mark = rpcbind.read_u32().await?;
        let len = u64::from(mark & !LAST);
        if reply.len() as u64 + len > REPLY_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is too long"));
        }
        let read = (&mut *rpcbind).take(len).read_to_end(&mut reply).await?;
        if (read as u64) < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if mark & LAST != 0 {
            return result(Bytes::from(reply)).map_err(garbage);
        }
    }
}

fn garbage(_: Garbage) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "rpcbind did not do it, and does not say why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_registered_as_clients_ask_for_it() {
        let of = |address: &str| {
            let wanted = wanted(address.parse().unwrap());
            let shown = |one: Registration| {
                format!("{} {} {} {}", one.program, one.version, one.transport, one.address)
            };
            wanted.into_iter().map(shown).collect::<Vec<_>>()
        };
        let four =
            ["100003 3 tcp 0.0.0.0.8.1", "100005 3 tcp 0.0.0.0.8.1", "100005 3 udp 0.0.0.0.8.1"];
        assert_eq!(of("0.0.0.0:2049"), four);
        let six = ["100003 3 tcp6 ::.8.1", "100005 3 tcp6 ::.8.1", "100005 3 udp6 ::.8.1"];
        assert_eq!(of("[::]:2049"), [&six[..], &four].concat());
        assert_eq!(of("[fe80::7]:513")[0], "100003 3 tcp6 fe80::7.2.1");
        assert_eq!(of("10.1.2.3:65535")[2], "100005 3 udp 10.1.2.3.255.255");
    }

    #[test]
    fn registrations_are_read_or_refused() {
        let wanted = wanted("127.0.0.1:2049".parse().unwrap());
        let mut reply = Writer::default();
        for one in &wanted {
            reply.flag(true).append(&one.to_arguments());
        }
        reply.flag(false);
        let reply = reply.finish();
        assert_eq!(read_all(Reader::new(reply.clone())), Ok(wanted));
        for len in 0..reply.len() {
            assert_eq!(read_all(Reader::new(reply.slice(..len))), Err(Garbage), "{len} bytes");
        }
    }
}
