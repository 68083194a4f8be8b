//! Networks of clients, for cases in which only the address of a client is known.

use std::fmt;
use std::net::IpAddr;

use cairn_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// Addresses with the same first bits. An IPv4 address within IPv6 (`::ffff:10.0.0.1`) is that
/// IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Bits of an IPv6 address before an embedded IPv4 address.
const MAPPED_BITS: u8 = 96;

impl Network {
    /// Parses `10.0.0.0/8`, `fd00::/8`, or a single address.
    ///
    /// # Errors
    /// `Invalid` for anything else, also for an address with bits after the prefix: it names one
    /// machine, and the network would have many.
    pub fn parse(text: &str) -> Result<Network> {
        let bad =
            || Error::Invalid(format!("network {text:?}: use 10.0.0.0/8, fd00::/8 or an address"));
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let plain = |prefix: &str| prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match prefix {
            Some(prefix) if plain(prefix) => prefix.parse().map_err(|_| bad())?,
            Some(_) => return Err(bad()),
            None => bits(&address),
        };
        let network = Network { address, prefix };
        if prefix > bits(&address) {
            return Err(bad());
        }
        if !network.is_canonical() {
            let meant = Network { address: masked(address, prefix), prefix };
            let text = format!("network {text}: the address has bits after /{prefix}: use {meant}");
            return Err(Error::Invalid(text));
        }
        Ok(network.without_mapping())
    }

    /// Reads bytes of [`Network::to_bytes`].
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Network> {
        let bad = || {
            Error::Invalid(format!(
                "network: {} bytes; a network is 5 or 17 bytes long",
                bytes.len()
            ))
        };
        let (prefix, address) = bytes.split_first().ok_or_else(bad)?;
        let address = match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
            (Ok(address), _) => IpAddr::from(address),
            (_, Ok(address)) => IpAddr::from(address),
            _ => return Err(bad()),
        };
        let network = Network { address, prefix: *prefix };
        let is_one = *prefix <= bits(&address) && network.is_canonical();
        if is_one { Ok(network) } else { Err(bad()) }
    }

    /// Returns the prefix, then the 4 or 16 bytes of the address.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![self.prefix];
        match self.address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
        bytes
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        bits(&address) == bits(&self.address) && masked(address, self.prefix) == self.address
    }

    /// Returns true if it contains all addresses of its version of IP.
    pub fn is_any(self) -> bool {
        self.prefix == 0
    }

    /// Returns true if all bits after the prefix are 0.
    fn is_canonical(self) -> bool {
        masked(self.address, self.prefix) == self.address
    }

    fn without_mapping(self) -> Network {
        match (self.address.to_canonical(), self.prefix.checked_sub(MAPPED_BITS)) {
            (address, Some(prefix)) if bits(&address) != bits(&self.address) => {
                Network { address, prefix }
            }
            _ => self,
        }
    }
}

fn bits(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns an address with the bits after a prefix set to 0.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("192.168.7.4", "192.168.7.4", "192.168.7.5"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "fe80::1", "1.2.3.4"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::1", "::1", "::2"),
            ("::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.1"),
        ] {
            let network = Network::parse(network).unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(Network::from_bytes(&network.to_bytes()).unwrap(), network);
            assert_eq!(Network::parse(&network.to_string()).unwrap(), network);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "example.org",
            "10.0.0.0/8/8",
            " 10.0.0.0/8",
            "10.0.0.0/256",
        ] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
        let refused = Network::parse("10.1.2.3/8").unwrap_err().to_string();
        assert!(refused.contains("10.0.0.0/8"), "{refused}");
        for bad in [&[][..], &[8], &[33, 0, 0, 0, 0], &[8, 10, 1, 0, 0], &[0; 16], &[129; 17]] {
            assert!(Network::from_bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn all_addresses_are_called_so() {
        for (network, is_any) in
            [("0.0.0.0/0", true), ("::/0", true), ("0.0.0.0/1", false), ("::ffff:0:0/96", true)]
        {
            assert_eq!(Network::parse(network).unwrap().is_any(), is_any, "{network}");
        }
    }
}
