//! Ports for programs that cannot choose a port on their own.
//!
//! A port that was free a moment ago may be taken when the program starts. The kernel may have
//! given it to any connection, or another run of this program may have taken it. So these ports are
//! below the kernel's range, and each is held as a UDP port, which nobody else requests, until this
//! run ends.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::ops::Range;

use parking_lot::Mutex;

use crate::error::{Error, Result};

const FIRST: u16 = 22_000;
const LAST: u16 = 60_000;
/// File with the first and the last port that the kernel gives to connections.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

static HELD: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// Returns an address of this machine where no process listens.
pub fn free_address() -> Result<String> {
    let ports = ports();
    let drawn = RandomState::new().build_hasher().finish() % ports.len() as u64;
    let from_there = ports.clone().cycle().skip(drawn as usize).take(ports.len());
    for port in from_there {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        if let Ok(held) = UdpSocket::bind(address)
            && TcpListener::bind(address).is_ok()
        {
            HELD.lock().push(held);
            return Ok(address.to_string());
        }
    }
    Err(Error::failed(format!("no free port from {} to {}", ports.start, ports.end)))
}

/// Returns the ports below the kernel's range. If that begins at or before `FIRST`, no port is safe
/// from it.
fn ports() -> Range<u16> {
    let range = fs::read_to_string(RANGE).unwrap_or_default();
    let kernels = range.split_whitespace().next().and_then(|first| first.parse().ok());
    let end = kernels.unwrap_or(LAST).min(LAST);
    FIRST..if end > FIRST { end } else { LAST }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_are_the_same_and_none_is_the_kernels() {
        let addresses: HashSet<_> = (0..200).map(|_| free_address().unwrap()).collect();
        assert_eq!(addresses.len(), 200);
        for address in addresses {
            let address: SocketAddrV4 = address.parse().unwrap();
            assert!(ports().contains(&address.port()), "{address}");
            assert!(TcpListener::bind(address).is_ok(), "{address}");
            assert!(UdpSocket::bind(address).is_err(), "{address} is not held");
        }
    }
}
