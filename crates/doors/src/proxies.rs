//! Proxies that are trusted to name the client of a request: by the PROXY protocol, version 2,
//! before the first byte of a connection, or by `X-Forwarded-For` in each request. From any other
//! peer both mean nothing: the former is no request, and the latter is ignored.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use cairn_auth::Network;
use http::{HeaderMap, HeaderName};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The header to which each proxy on the way appends the address of its own client.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The first bytes of a header of the PROXY protocol, version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of the fixed part of a header, with the signature.
const HEAD_BYTES: usize = 16;
/// Most bytes that are read of the rest of a header: addresses, and further fields.
const REST_BYTES: usize = 2048;

/// The networks of trusted proxies; none by default.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Arc<[Network]>);

impl Proxies {
    pub fn new(networks: Vec<Network>) -> Proxies {
        Proxies(networks.into())
    }

    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the client of a request that came from `peer`: the last address in `X-Forwarded-For`
    /// that does not belong to a trusted proxy. Any client could have written the addresses before
    /// it. The port of a client other than the peer is unknown, and is 0.
    pub fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if !self.trusts(peer.ip()) {
            return peer;
        }
        let mut client = peer;
        let mut lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
        lines.reverse();
        let lines = lines.into_iter().map_while(|line| line.to_str().ok());
        for address in lines.flat_map(|line| line.rsplit(',')).map_while(address_of) {
            client = SocketAddr::new(address, 0);
            if !self.trusts(address) {
                break;
            }
        }
        client
    }
}

/// Reads an address as proxies write it: alone, in brackets, or with a port.
fn address_of(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let alone = bare.parse::<IpAddr>().ok();
    let address = alone.or_else(|| text.parse::<SocketAddr>().ok().map(|both| both.ip()));
    address.map(|address| address.to_canonical())
}

/// Removes a header of the PROXY protocol from a stream whose first bytes are `head`, if they begin
/// one. Returns the client that it names: `None` if the proxy itself is the client.
///
/// # Errors
/// `InvalidData` for a header that is malformed or too long.
pub async fn take_header(stream: &mut TcpStream, head: &[u8]) -> io::Result<Option<SocketAddr>> {
    if head != SIGNATURE {
        return Ok(None);
    }
    let mut fixed = [0; HEAD_BYTES];
    stream.read_exact(&mut fixed).await?;
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > REST_BYTES {
        return Err(malformed("it is too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    parse(fixed[12], fixed[13], &rest)
}

/// Number of bytes that show whether a header of the PROXY protocol follows.
pub const LOOK_BYTES: usize = SIGNATURE.len();

/// Returns whether further bytes may still complete the beginning of a header.
pub fn may_be_header(head: &[u8]) -> bool {
    SIGNATURE.starts_with(head) && head.len() < SIGNATURE.len()
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("header of the PROXY protocol: {what}"))
}

/// Returns the source in a header, by its command, its family, and the bytes that follow.
fn parse(command: u8, family: u8, rest: &[u8]) -> io::Result<Option<SocketAddr>> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    match (command, family) {
        (LOCAL, _) => Ok(None),
        (PROXY, TCP4) => {
            let Some((addresses, _)) = rest.split_first_chunk::<12>() else {
                return Err(malformed("it is too short"));
            };
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses;
            let port = u16::from_be_bytes([high, low]);
            Ok(Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port)))
        }
        (PROXY, TCP6) => {
            let Some((addresses, _)) = rest.split_first_chunk::<36>() else {
                return Err(malformed("it is too short"));
            };
            let Some((source, _)) = addresses.split_first_chunk::<16>() else {
                return Err(malformed("it is too short"));
            };
            let port = u16::from_be_bytes([addresses[32], addresses[33]]);
            Ok(Some(SocketAddr::new(Ipv6Addr::from(*source).to_canonical(), port)))
        }
        // Another family, or an unknown one: the proxy itself counts as the client.
        (PROXY, _) => Ok(None),
        _ => Err(malformed("an unknown version or command")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusting(networks: &[&str]) -> Proxies {
        Proxies::new(networks.iter().map(|text| Network::parse(text).unwrap()).collect())
    }

    fn client(proxies: &Proxies, peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        proxies.client(SocketAddr::new(peer.parse().unwrap(), 7), &headers).ip().to_string()
    }

    #[test]
    fn a_client_is_what_the_nearest_trusted_proxies_say() {
        let none = Proxies::default();
        let some = trusting(&["10.0.0.0/8", "fd00::/8"]);
        for (proxies, peer, lines, wanted) in [
            (&none, "10.0.0.1", &["192.0.2.1"][..], "10.0.0.1"),
            (&some, "192.0.2.9", &["192.0.2.1"], "192.0.2.9"),
            (&some, "10.0.0.1", &[], "10.0.0.1"),
            (&some, "10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            (&some, "::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            // What a client made up stands before what a proxy appended.
            (&some, "10.0.0.1", &["127.0.0.1, 192.0.2.1"], "192.0.2.1"),
            (&some, "10.0.0.1", &["10.0.0.7, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
            (&some, "10.0.0.1", &["192.0.2.1", "192.0.2.2", "10.0.0.3"], "192.0.2.2"),
            (&some, "10.0.0.1", &["10.0.0.9,10.0.0.8"], "10.0.0.9"),
            (&some, "10.0.0.1", &["192.0.2.1, nonsense"], "10.0.0.1"),
            (&some, "10.0.0.1", &["nonsense, 10.0.0.3"], "10.0.0.3"),
            (&some, "fd00::1", &["2001:db8::7"], "2001:db8::7"),
            (&some, "10.0.0.1", &["[2001:db8::7]:443"], "2001:db8::7"),
            (&some, "10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            (&some, "10.0.0.1", &["192.0.2.1:443"], "192.0.2.1"),
            (&some, "10.0.0.1", &["192.0.2.1,"], "10.0.0.1"),
        ] {
            assert_eq!(client(proxies, peer, lines), wanted, "{peer} {lines:?}");
        }
    }

    #[test]
    fn a_header_names_a_client_or_is_refused() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80, 9, 9];
        let found = parse(0x21, 0x11, &v4).unwrap().unwrap();
        assert_eq!(found.to_string(), "192.0.2.1:4660");
        let mut v6 = [0; 36];
        v6[..2].copy_from_slice(&[0x20, 0x01]);
        v6[15] = 7;
        assert_eq!(parse(0x21, 0x21, &v6).unwrap().unwrap().ip().to_string(), "2001::7");
        for (command, family, rest) in
            [(0x20, 0, &[][..]), (0x20, 0x11, &v4), (0x21, 0, &[]), (0x21, 0x31, &[0; 216])]
        {
            assert_eq!(parse(command, family, rest).unwrap(), None, "{command:x} {family:x}");
        }
        for (command, family, rest) in
            [(0x21, 0x11, &v4[..11]), (0x21, 0x21, &v6[..35]), (0x22, 0x11, &v4), (0x11, 0x11, &v4)]
        {
            parse(command, family, rest).unwrap_err();
        }
    }

    #[test]
    fn the_beginning_of_a_header_is_waited_for() {
        assert!(may_be_header(b"") && may_be_header(b"\r\n\r\n\0"));
        assert!(!may_be_header(b"GET / HTTP") && !may_be_header(b"\r\nGET"));
        assert!(!may_be_header(SIGNATURE), "it is whole");
    }
}
