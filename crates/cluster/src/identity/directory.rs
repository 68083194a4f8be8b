//! A node's identity on its disk. `docs/protocol.md` says what each file is.
//!
//! ```text
//!   DIR/node.key      private, 0600: made here, never leaves
//!   DIR/node.pem      the node's certificate: replaced when renewed
//!   DIR/node.next.pem its certificate under a new number, until it is in node.pem
//!   DIR/ca.pem        the certificate of the cluster's authority
//!   DIR/cluster.toml  who this node is and where masters are: written last, so that the identity
//!                     is whole when it is there
//!   DIR/ca.key        private, 0600: only where nodes are admitted
//! ```
//!
//! Each file is written beside its place, synced, and renamed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::{ClusterId, Error, KeyHash, NodeId, Pin, Result, Role, Roles, Secret, Timestamp};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

use super::authority::Authority;
use super::ca::Ca;
use super::join::JoinResult;
use super::key::{NodeKey, invalid};
use super::node::Identity;
use super::pins::KnownNode;

const VERSION: u32 = 1;
const NODE_KEY: &str = "node.key";
const NODE_CERTIFICATE: &str = "node.pem";
/// Certificate for a new number, until it is in `node.pem`.
const NEXT_CERTIFICATE: &str = "node.next.pem";
const CA_KEY: &str = "ca.key";
const CA_CERTIFICATE: &str = "ca.pem";
const CLUSTER: &str = "cluster.toml";

/// The directory that holds a node's identity.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// Held while `cluster.toml` is changed.
    changing: Mutex<()>,
}

/// `cluster.toml`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    version: u32,
    cluster: String,
    node: String,
    roles: Vec<String>,
    addresses: Vec<String>,
    #[serde(default)]
    masters: Vec<KnownFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile {
    node: String,
    key: String,
    roles: Vec<String>,
}

/// The contents of a directory.
#[derive(Debug)]
pub struct DirectoryContents {
    pub identity: Arc<Identity>,
    pub roles: Roles,
    /// Addresses of masters, each `host:port`.
    pub addresses: Vec<String>,
    pub masters: Vec<KnownNode>,
}

impl Directory {
    /// Opens the directory; makes it if it is missing, for its owner only.
    pub fn open(root: &Path) -> Result<Directory> {
        match DirBuilder::new().mode(0o700).create(root) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
            _ => Ok(Directory { root: root.to_path_buf(), changing: Mutex::default() }),
        }
    }

    /// Returns the node's key. Makes it, durably, if there is none: a node that was interrupted
    /// while it joined must ask again with the same key.
    pub fn key(&self) -> Result<NodeKey> {
        match self.read_secret(NODE_KEY)? {
            Some(pem) => NodeKey::from_pem(&pem),
            None => {
                let key = NodeKey::generate()?;
                self.write(NODE_KEY, key.to_pem().expose().as_bytes(), 0o600)?;
                Ok(key)
            }
        }
    }

    /// Keeps the authority here, with its private key.
    pub fn save_ca(&self, ca: &Ca) -> Result<()> {
        self.write(CA_KEY, ca.key().to_pem().expose().as_bytes(), 0o600)?;
        self.save_certificate(CA_CERTIFICATE, ca.authority().certificate())
    }

    /// Keeps the private key of the authority whose certificate is here, as another master sent it.
    pub fn keep_authority(&self, identity: &Identity, pem: &Secret<String>) -> Result<()> {
        let certificate = identity.authority().certificate().clone();
        self.save_ca(&Ca::load(identity.cluster(), NodeKey::from_pem(pem)?, certificate)?)
    }

    /// Loads the authority with its private key.
    ///
    /// # Errors
    /// `NotFound` if the authority is not kept here.
    pub fn load_ca(&self, cluster: ClusterId) -> Result<Ca> {
        let missing = || Error::NotFound(self.shown(CA_KEY));
        let key = NodeKey::from_pem(&self.read_secret(CA_KEY)?.ok_or_else(missing)?)?;
        Ca::load(cluster, key, self.read_certificate(CA_CERTIFICATE)?)
    }

    /// Saves what a node received when it joined.
    pub fn save(&self, joined: &JoinResult, addresses: &[String]) -> Result<()> {
        self.save_certificate(CA_CERTIFICATE, joined.authority.certificate())?;
        self.save_node_certificate(&joined.certificate)?;
        let file = ClusterFile {
            version: VERSION,
            cluster: format!("{:032x}", joined.authority.cluster().0),
            node: format!("{:016x}", joined.node.0),
            roles: words(joined.roles),
            addresses: addresses.to_vec(),
            masters: joined.masters.iter().map(known_file).collect(),
        };
        let text = toml::to_string(&file).map_err(invalid(CLUSTER))?;
        self.write(CLUSTER, text.as_bytes(), 0o644)
    }

    /// Notes the current masters and their addresses, if they have changed: a node that starts
    /// later has to find them.
    pub fn remember_masters(&self, masters: &[KnownNode], addresses: &[String]) -> Result<()> {
        let _changing = self.changing.lock();
        let Some(text) = self.read(CLUSTER)? else { return Ok(()) };
        let text = String::from_utf8(text).map_err(invalid(CLUSTER))?;
        let mut file: ClusterFile = toml::from_str(&text).map_err(invalid(&self.shown(CLUSTER)))?;
        file.masters = masters.iter().map(known_file).collect();
        file.addresses = addresses.to_vec();
        let new = toml::to_string(&file).map_err(invalid(CLUSTER))?;
        if new == text { Ok(()) } else { self.write(CLUSTER, new.as_bytes(), 0o644) }
    }

    /// Replaces the node's certificate, after it was renewed.
    pub fn save_node_certificate(&self, certificate: &CertificateDer<'_>) -> Result<()> {
        self.save_certificate(NODE_CERTIFICATE, certificate)
    }

    /// Makes this `node` from now on, with this certificate for the same key. Durable when
    /// `cluster.toml` names the number; [`Directory::end_renumbering`] is to follow.
    ///
    /// # Errors
    /// `NotFound` if this node has not joined.
    pub fn renumber(&self, node: NodeId, certificate: &CertificateDer<'_>) -> Result<()> {
        let _changing = self.changing.lock();
        let text = self.read(CLUSTER)?.ok_or_else(|| Error::NotFound(self.shown(CLUSTER)))?;
        let text = String::from_utf8(text).map_err(invalid(CLUSTER))?;
        let mut file: ClusterFile = toml::from_str(&text).map_err(invalid(&self.shown(CLUSTER)))?;
        self.save_certificate(NEXT_CERTIFICATE, certificate)?;
        file.node = format!("{:016x}", node.0);
        let text = toml::to_string(&file).map_err(invalid(CLUSTER))?;
        self.write(CLUSTER, text.as_bytes(), 0o644)
    }

    /// Returns true if the node has got a new number, and has not yet let go of what it kept under
    /// the former number.
    ///
    /// # Errors
    /// Those of [`Directory::load`].
    pub fn is_renumbered(&self, now: Timestamp) -> Result<bool> {
        let next = self.read(NEXT_CERTIFICATE)?;
        let Some(loaded) = next.is_some().then(|| self.load(now)).transpose()?.flatten() else {
            return Ok(false);
        };
        Ok(loaded.identity.certificate() == self.read_certificate(NEXT_CERTIFICATE)?)
    }

    /// Keeps the certificate for the new number in the usual place.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn end_renumbering(&self) -> Result<()> {
        self.save_node_certificate(&self.read_certificate(NEXT_CERTIFICATE)?)?;
        fs::remove_file(self.root.join(NEXT_CERTIFICATE))?;
        File::open(&self.root)?.sync_all()?;
        Ok(())
    }

    /// Reads the identity; `None` if this node has not joined yet.
    ///
    /// # Errors
    /// `Denied` if others than the owner can read a private key, or the certificate has expired;
    /// `Invalid` if the files do not fit each other.
    pub fn load(&self, now: Timestamp) -> Result<Option<DirectoryContents>> {
        let Some(text) = self.read(CLUSTER)? else { return Ok(None) };
        let text = String::from_utf8(text).map_err(invalid(CLUSTER))?;
        let file: ClusterFile = toml::from_str(&text).map_err(invalid(&self.shown(CLUSTER)))?;
        if file.version != VERSION {
            let shown = self.shown(CLUSTER);
            return Err(Error::Invalid(format!(
                "{shown}: version {}, this cairn knows {VERSION}: use the newer cairn that wrote it",
                file.version
            )));
        }
        let bad = |what: &str| Error::Invalid(format!("{}: {what}", self.shown(CLUSTER)));
        let cluster = u128::from_str_radix(&file.cluster, 16).map_err(|_| bad("cluster"))?;
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| bad("node"));
        let node = NodeId(number(&file.node)?);
        let mut masters = Vec::new();
        for known in &file.masters {
            let pin = Pin { key: known.key.parse::<KeyHash>()?, roles: read_roles(&known.roles)? };
            masters.push(KnownNode { node: NodeId(number(&known.node)?), pin });
        }
        let authority = Authority::new(ClusterId(cluster), self.read_certificate(CA_CERTIFICATE)?)?;
        let key = self.read_secret(NODE_KEY)?.ok_or_else(|| bad("there is no node.key"))?;
        let key = NodeKey::from_pem(&key)?;
        let certificate = self.read_certificate(NODE_CERTIFICATE)?;
        let identity = match self.read(NEXT_CERTIFICATE)? {
            None => Identity::new(node, authority, key, certificate, now)?,
            Some(_) => {
                // A change of its number was begun: the number in `cluster.toml` counts.
                let next = self.read_certificate(NEXT_CERTIFICATE)?;
                let again = NodeKey::from_pem(&key.to_pem())?;
                Identity::new(node, authority.clone(), again, next, now)
                    .or_else(|_| Identity::new(node, authority, key, certificate, now))?
            }
        };
        let roles = read_roles(&file.roles)?;
        Ok(Some(DirectoryContents { identity, roles, addresses: file.addresses, masters }))
    }

    fn shown(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    fn save_certificate(&self, name: &str, certificate: &CertificateDer<'_>) -> Result<()> {
        self.write(name, to_pem(certificate).as_bytes(), 0o644)
    }

    fn read_certificate(&self, name: &str) -> Result<CertificateDer<'static>> {
        let missing = || Error::NotFound(self.shown(name));
        let pem = self.read(name)?.ok_or_else(missing)?;
        CertificateDer::from_pem_slice(&pem)
            .map_err(|error| Error::Invalid(format!("{}: {error:?}", self.shown(name))))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match fs::read(self.root.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_secret(&self, name: &str) -> Result<Option<Secret<String>>> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|_| Error::Invalid(self.shown(name)));
        let text = Secret::new(text?);
        let mode = fs::metadata(self.root.join(name))?.mode();
        if mode & 0o077 != 0 {
            let shown = self.shown(name);
            return Err(Error::Denied(format!("others can read {shown}: chmod 600 {shown}")));
        }
        Ok(Some(text))
    }

    /// Replaces a file so that, whenever the power fails, the former or the new file is there.
    fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let aside = self.root.join(format!("{name}.new"));
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, self.root.join(name))?;
        File::open(&self.root)?.sync_all()?;
        Ok(())
    }
}

fn words(roles: Roles) -> Vec<String> {
    roles.iter().map(|role| role.word().to_owned()).collect()
}

fn known_file(known: &KnownNode) -> KnownFile {
    KnownFile {
        node: format!("{:016x}", known.node.0),
        key: known.pin.key.to_string(),
        roles: words(known.pin.roles),
    }
}

fn read_roles(words: &[String]) -> Result<Roles> {
    words.iter().map(|word| word.parse::<Role>()).collect()
}

fn to_pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
