//! Mounts of volumes by NFS of the kernel, without the program `mount.nfs`.

use std::ffi::CString;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use tonic::Status;

use crate::mounts::failed;
use crate::volume::VolumeId;

/// Default port.
const PORT: u16 = 2049;
/// Deadline of a connection to a server, which is tried before the mount: the kernel would wait for
/// minutes.
const CONNECT: Duration = Duration::from_secs(5);

/// Options that a caller may add to a mount: whole words, and words before a number.
const WORDS: [&str; 14] = [
    "hard",
    "soft",
    "softerr",
    "ac",
    "noac",
    "cto",
    "nocto",
    "rdirplus",
    "nordirplus",
    "sharecache",
    "nosharecache",
    "lookupcache=all",
    "lookupcache=none",
    "lookupcache=pos",
];
const NUMBERS: [&str; 10] = [
    "timeo=",
    "retrans=",
    "rsize=",
    "wsize=",
    "acregmin=",
    "acregmax=",
    "acdirmin=",
    "acdirmax=",
    "actimeo=",
    "nconnect=",
];
/// Options that every mount has; a caller may name them too.
const ALWAYS: [&str; 7] =
    ["rw", "vers=3", "nfsvers=3", "nolock", "proto=tcp", "mountproto=tcp", "tcp"];

/// A server of NFS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nfs {
    host: String,
    port: u16,
}

impl Nfs {
    /// Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
    ///
    /// # Errors
    /// In words: it is none of these.
    pub fn parse(text: &str) -> Result<Nfs, String> {
        let bad = || format!("{text:?}: use HOST, HOST:PORT or [IPV6]:PORT");
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (text, PORT),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => address,
            Some(_) => return Err(bad()),
            None => host,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        let is_good = !host.is_empty() && host.chars().all(is_plain);
        let is_good = is_good && (bare.is_some() || !host.contains(':')) && port > 0;
        is_good.then(|| Nfs { host: host.to_owned(), port }).ok_or_else(bad)
    }

    /// Returns an address of the server that accepts connections.
    fn reached(&self) -> Result<SocketAddr, Status> {
        let of = |error: &dyn std::fmt::Display| {
            Status::unavailable(format!("NFS server {}:{}: {error}", self.host, self.port))
        };
        let found =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| of(&error))?;
        let mut why = of(&"it has no address");
        for address in found {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(_) => return Ok(address),
                Err(error) => why = of(&error),
            }
        }
        Err(why)
    }

    /// Mounts the export of a volume.
    pub fn mount(
        &self,
        volume: &VolumeId,
        at: &Path,
        flags: MountFlags,
        added: &[String],
    ) -> Result<(), Status> {
        let address = self.reached()?;
        let source = format!("{}:/{volume}", written(&self.host));
        let options = CString::new(options(address, added))
            .map_err(|_| Status::invalid_argument("an option of the mount has a NUL"))?;
        mount(source.as_str(), at, "nfs", flags, options.as_c_str()).map_err(|error| match error {
            Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::STALE => Status::not_found(
                format!("volume {volume}: there is no export of it for this node ({error})"),
            ),
            Errno::NODEV => Status::failed_precondition(
                "this kernel has no NFS: load its module (modprobe nfs) or use --with mount",
            ),
            _ => failed(at, &format!("mount -t nfs {source}"), &error.into()),
        })
    }
}

/// Returns a host in the form for the name of a source.
fn written(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Returns the options in the form for the kernel, which asks the server for the handle itself.
fn options(address: SocketAddr, added: &[String]) -> String {
    let (ip, port) = (address.ip(), address.port());
    let tcp = if ip.is_ipv6() { "tcp6" } else { "tcp" };
    let mut options = format!(
        "vers=3,nolock,proto={tcp},mountproto={tcp},port={port},mountport={port},addr={ip},mountaddr={ip}"
    );
    for option in added {
        options.push(',');
        options.push_str(option);
    }
    options
}

/// Divides options of a mount into flags of every file system and options of NFS.
///
/// # Errors
/// `InvalidArgument` for an unknown option, or for one of NFS unless `is_nfs`: it might change who
/// reaches what.
pub fn part(given: &[String], is_nfs: bool) -> Result<(MountFlags, Vec<String>), Status> {
    // No program in a volume gets the rights of another user, and none reaches a device.
    let (mut flags, mut options) = (MountFlags::NOSUID | MountFlags::NODEV, Vec::new());
    for option in given.iter().flat_map(|given| given.split(',')) {
        let is_number = |name: &&str| {
            let number = option.strip_prefix(*name);
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        match option {
            "" | "nosuid" | "nodev" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "noexec" => flags |= MountFlags::NOEXEC,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            option if is_nfs && ALWAYS.contains(&option) => {}
            option if is_nfs && (WORDS.contains(&option) || NUMBERS.iter().any(is_number)) => {
                options.push(option.to_owned());
            }
            _ => {
                let text = format!("mount option {option:?}: this driver does not know it");
                return Err(Status::invalid_argument(text));
            }
        }
    }
    Ok((flags, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_with_or_without_a_port() {
        let nfs = |host: &str, port| Ok(Nfs { host: host.to_owned(), port });
        assert_eq!(Nfs::parse("cairn.example.org"), nfs("cairn.example.org", 2049));
        assert_eq!(Nfs::parse("10.0.0.1:12049"), nfs("10.0.0.1", 12049));
        assert_eq!(Nfs::parse("[fd00::1]:2050"), nfs("fd00::1", 2050));
        assert_eq!(Nfs::parse("[fd00::1]"), nfs("fd00::1", 2049));
        for bad in ["", ":1", "a:", "a:b", "a:0", "fd00::1", "[a]:1", "a,vers=4", "a/b", "a b"] {
            assert!(Nfs::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_kernel_is_told_all_that_a_program_would_tell_it() {
        let added = ["hard".to_owned(), "timeo=600".to_owned()];
        assert_eq!(
            options("10.0.2.2:2049".parse().unwrap(), &added),
            "vers=3,nolock,proto=tcp,mountproto=tcp,port=2049,mountport=2049,addr=10.0.2.2,\
             mountaddr=10.0.2.2,hard,timeo=600"
        );
        let six = options("[fd00::1]:2049".parse().unwrap(), &[]);
        assert!(six.contains("proto=tcp6") && six.contains("addr=fd00::1"), "{six}");
    }

    #[test]
    fn only_options_that_are_known_are_taken() {
        let given = |text: &str| vec![text.to_owned()];
        let (flags, options) = part(&given("ro,noexec,timeo=600,vers=3,soft"), true).unwrap();
        assert_eq!(options, ["timeo=600", "soft"]);
        assert!(flags.contains(MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID));
        for bad in ["suid", "dev", "addr=10.0.0.9", "vers=4", "timeo=a", "port=1", "mountaddr=::1"]
        {
            assert!(part(&given(bad), true).is_err(), "{bad}");
        }
        assert!(part(&given("timeo=600"), false).is_err());
        assert!(part(&given("noatime"), false).is_ok());
    }
}
