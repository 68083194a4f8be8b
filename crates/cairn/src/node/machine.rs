//! `machine.toml`: facts that `cairn node` keeps about its machine.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cairn_base::{NodeId, Role};
use serde::{Deserialize, Serialize};

use super::host_and_port;
use crate::dir::{MACHINE, directory_of_role, settings_file};
use crate::failure::{Failure, Result};

/// Newest version of the file.
const VERSION: u32 = 2;
/// Version of the file of a machine with the one disk `DIR/disk`.
const VERSION_ONE_DISK: u32 = 1;
const NEW_NAME: &str = "machine.new";

/// A machine, in the form of its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    version: u32,
    /// Name, or IP address without brackets.
    pub host: String,
    /// Port of the master. Chunkservers have the next ports, in the order of their disks.
    pub port: u16,
    /// Disks of its chunkservers.
    #[serde(default = "first_disk", skip_serializing_if = "is_first_disk")]
    pub disks: Vec<Disk>,
}

/// The disk of a chunkserver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Path of the disk; a relative one begins at DIR.
    pub directory: PathBuf,
    /// Number of the node in hexadecimal digits, for times when the disk cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

impl Disk {
    pub fn new(directory: PathBuf, node: NodeId) -> Disk {
        Disk { directory, node: Some(digits(node)) }
    }

    /// Notes to which node this disk belongs.
    pub fn set_node(&mut self, node: NodeId) {
        self.node = Some(digits(node));
    }

    /// Returns true if the disk was noted as that of `node`.
    pub fn is_of(&self, node: NodeId) -> bool {
        self.node.as_ref() == Some(&digits(node))
    }
}

/// Returns the number of a node as the file has it.
fn digits(node: NodeId) -> String {
    format!("{:x}", node.0)
}

fn first_disk() -> Vec<Disk> {
    vec![Disk { directory: directory_of_role(Role::Chunkserver).into(), node: None }]
}

fn is_first_disk(disks: &[Disk]) -> bool {
    matches!((disks, &first_disk()[..]), ([one], [first]) if one.directory == first.directory)
}

/// Makes the directory of a machine, if it is missing.
pub fn make_directory(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Failure::file(dir, &error)),
        _ => Ok(()),
    }
}

impl Machine {
    /// Makes a machine with one disk.
    ///
    /// # Errors
    /// The host is neither a name nor an address.
    pub fn new(host: &str, port: u16) -> Result<Machine> {
        let host = host.trim_matches(['[', ']']).to_owned();
        let machine = Machine { version: VERSION_ONE_DISK, host, port, disks: first_disk() };
        host_and_port(&machine.at(0)).map_err(Failure::usage)?;
        Ok(machine)
    }

    /// Reads the machine of a directory; `None` if it belongs to no machine.
    ///
    /// # Errors
    /// The file cannot be read, or is of a newer version.
    pub fn read(dir: &Path) -> Result<Option<Machine>> {
        settings_file::read(&dir.join(MACHINE), 0..=VERSION)
    }

    /// Writes the file, and makes the directory if it is missing. The file belongs to the owner of
    /// the directory, whichever user writes it.
    pub fn save(&self, dir: &Path) -> Result<()> {
        make_directory(dir)?;
        let version = if is_first_disk(&self.disks) { VERSION_ONE_DISK } else { VERSION };
        let text = toml::to_string(&Machine { version, ..self.clone() });
        let text = text.map_err(|error| Failure::new(error.to_string()))?;
        let replaced = settings_file::replace(dir, MACHINE, NEW_NAME, &text);
        replaced.map_err(|error| Failure::file(&dir.join(MACHINE), &error))
    }

    /// Returns the directories of all chunkservers, each with the offset of its port.
    pub fn chunkservers(&self, dir: &Path) -> Vec<(PathBuf, u16)> {
        self.disks.iter().map(|disk| dir.join(&disk.directory)).zip(1..).collect()
    }

    /// Returns the zone of all its chunkservers, if it has several. A single one is a zone of its
    /// own.
    pub fn zone(&self) -> Option<&str> {
        (self.disks.len() > 1).then_some(&self.host)
    }

    /// Returns the address at which others reach the master (0), or a chunkserver.
    pub fn at(&self, offset: u16) -> String {
        let port = self.port.saturating_add(offset);
        match self.host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]:{port}"),
            Err(_) => format!("{}:{port}", self.host),
        }
    }

    /// Returns the address at which its nodes listen: only the address by which others reach them,
    /// if this machine has it. Behind a translation of addresses, or with a name, it is any
    /// address.
    pub fn listen(&self, offset: u16) -> String {
        let port = self.port.saturating_add(offset);
        if let Ok(address) = self.host.parse::<IpAddr>()
            && TcpListener::bind((address, 0)).is_ok()
        {
            return SocketAddr::new(address, port).to_string();
        }
        match self.host.parse::<Ipv6Addr>() {
            Ok(_) => format!("[::]:{port}"),
            Err(_) => format!("0.0.0.0:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn addresses_of_a_machine() {
        let both = |host: &str| {
            let machine = Machine::new(host, 7400).unwrap();
            (machine.at(0), machine.listen(1))
        };
        assert_eq!(both("192.0.2.1"), ("192.0.2.1:7400".into(), "0.0.0.0:7401".into()));
        assert_eq!(both("127.0.0.9"), ("127.0.0.9:7400".into(), "127.0.0.9:7401".into()));
        assert_eq!(both("one.example"), ("one.example:7400".into(), "0.0.0.0:7401".into()));
        assert_eq!(both("[2001:db8::1]"), ("[2001:db8::1]:7400".into(), "[::]:7401".into()));
        assert!(Machine::new("", 7400).is_err());
    }

    #[test]
    fn further_disks_are_of_a_newer_version() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(Machine::read(dir).unwrap(), None);
        let mut machine = Machine::new("one", 7400).unwrap();
        machine.save(dir).unwrap();
        let text = || fs::read_to_string(dir.join(MACHINE)).unwrap();
        assert_eq!(text(), "version = 1\nhost = \"one\"\nport = 7400\n");
        assert_eq!((machine.zone(), machine.chunkservers(dir).len()), (None, 1));
        machine.disks.push(Disk::new("/srv/disk2".into(), NodeId(31)));
        symlink("/nonexistent/target", dir.join("machine.new")).unwrap();
        machine.save(dir).unwrap();
        assert!(text().starts_with("version = 2\n"), "{}", text());
        assert!(text().contains("node = \"1f\""), "{}", text());
        let read = Machine::read(dir).unwrap().unwrap();
        assert_eq!((read.zone(), &read.disks), (Some("one"), &machine.disks));
        let chunkservers = read.chunkservers(dir);
        assert_eq!(chunkservers, [(dir.join("disk"), 1), ("/srv/disk2".into(), 2)]);
        fs::write(dir.join(MACHINE), "version = 3\nhost = \"one\"\nracks = 7\n").unwrap();
        assert!(Machine::read(dir).unwrap_err().to_string().contains("use the newer one"));
    }
}
