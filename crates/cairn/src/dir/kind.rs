//! The kind of a directory, by the names in it and the few small files that decide. Nothing is
//! locked, made or changed.
//!
//! ```text
//!   format                     a store, or the metadata or blocks of a node
//!   cluster.toml               a node of a cluster, which has joined
//!   machine.toml               a machine of `cairn node`; its nodes are in master, disk, gateway
//!   head                       a backup
//!   adoption.toml              a server on its way to be a machine, or back
//! ```
//!
//! Former versions made a new thing beside another one. So a directory may be of several kinds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use cairn_base::{Role, Roles};

use super::adoption::{Adoption, AdoptionStep};
use super::format::{self, Format, MetaPlace};
use super::lock;
use super::names::{ADOPTION_FILE, CLUSTER_FILE, MACHINE, directory_of_role};
use crate::failure::{Failure, Result};

/// Names that may be in a directory that holds nothing yet.
const IGNORED: [&str; 3] = [lock::NAME, format::NEW_NAME, "lost+found"];
/// The files of a node that has not joined yet.
const OF_JOINING: [&str; 7] = [
    "node.key",
    "node.key.new",
    "node.pem",
    "node.pem.new",
    "ca.pem",
    "ca.pem.new",
    "cluster.toml.new",
];
/// The first file of a backup, and its directories.
const HEAD: &str = "head";
const OF_BACKUP: [&str; 4] = ["packs", "index", "states", "locks"];
/// Upper bound of the size of a file that decides on a kind, bytes.
const FILE_BYTES: u64 = 64 << 10;

/// The kind of a directory that is not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectoryKind {
    /// The store of `cairn server`.
    Server,
    /// The store of a server whose metadata `cairn cluster init` of a former version replaced.
    OverwrittenServer,
    /// A server whose adoption by a cluster, or the way back, was interrupted in this step, which
    /// is none if the file cannot be read.
    Adoption(Option<AdoptionStep>),
    /// A machine of `cairn node`.
    Machine,
    /// Directories for the nodes of a machine, before its first start.
    MachineParts,
    /// A node of a cluster that has joined with these roles, which are none if its file cannot be
    /// read.
    Node(Roles),
    /// A node that has metadata or blocks, but no file `format`.
    NodeWithoutFormat,
    /// A node that has a certificate and a file `format`, but no `cluster.toml`.
    NodeWithoutIdentity,
    /// A node that has not joined yet: `cairn cluster join` was interrupted, or has failed.
    Joining,
    /// A store, or the first master of a cluster, that was interrupted before it had any metadata
    /// of use.
    Begun(MetaPlace),
    /// The first master of a cluster that keeps its metadata alone, interrupted by its end.
    UnfinishedInit,
    /// A store that has metadata or blocks, but no file `format`.
    StoreWithoutFormat,
    /// A backup.
    Backup,
    /// Something else, with this name.
    Foreign(String),
}

use DirectoryKind as Kind;

impl DirectoryKind {
    /// Returns the kinds of the directory `path`, the most important first; none if it is missing
    /// or empty.
    ///
    /// # Errors
    /// It is no directory, or cannot be read.
    pub fn of(path: &Path) -> Result<Vec<DirectoryKind>> {
        Ok(Listing::read(path)?.kinds())
    }
}

/// Kinds of the directory for one role of a machine.
struct Part {
    role: Role,
    kinds: Vec<DirectoryKind>,
}

/// Facts that decide on the kind of a directory.
#[derive(Default)]
struct Listing {
    names: BTreeSet<String>,
    /// Place of the metadata by the file `format`, if that can be read.
    place: Option<MetaPlace>,
    /// Roles by `cluster.toml`, if that can be read.
    roles: Roles,
    /// Set if the file `head` is that of a backup.
    has_head: bool,
    /// Set if `meta` or `blocks` has files of a store.
    has_data: bool,
    /// Step of an adoption, if its file can be read.
    step: Option<AdoptionStep>,
    parts: Vec<Part>,
}

impl Listing {
    fn read(path: &Path) -> Result<Listing> {
        let fail = |error| Failure::file(path, &error);
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Listing::default()),
            Err(error) => return Err(fail(error)),
        };
        let mut names = BTreeSet::new();
        for entry in entries {
            names.insert(entry.map_err(fail)?.file_name().to_string_lossy().into_owned());
        }
        let place = Format::read(path).ok().map(|format| format.meta);
        let has_head = text_of(&path.join(HEAD)).contains("\"cairn backup\"");
        let roles = roles_in(&text_of(&path.join(CLUSTER_FILE)));
        let has_data = has_files_of_store(path);
        let step = Adoption::read(path).ok().flatten().map(|adoption| adoption.step);
        let mut parts = Vec::new();
        let is_of_parts = |name: &String| is_ignored(name) || is_of_parts(name);
        if !names.is_empty() && names.iter().all(is_of_parts) {
            for role in Role::ALL {
                let part = path.join(directory_of_role(role));
                parts.push(Part { role, kinds: Listing::read(&part)?.kinds() });
            }
        }
        Ok(Listing { names, place, roles, has_head, has_data, step, parts })
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn kinds(&self) -> Vec<DirectoryKind> {
        if self.has(ADOPTION_FILE) && !self.step.is_some_and(AdoptionStep::is_of_machine) {
            return vec![Kind::Adoption(self.step)];
        }
        let mut kinds = Vec::new();
        if self.has(MACHINE) {
            kinds.push(Kind::Machine);
        }
        if self.has(CLUSTER_FILE) {
            kinds.push(self.joined());
        } else if self.has(format::NAME) {
            kinds.push(self.with_format());
        }
        if self.has_head {
            kinds.push(Kind::Backup);
        }
        if kinds.is_empty() {
            kinds.extend(self.without_a_deciding_file());
        }
        kinds
    }

    /// Returns the kind by `cluster.toml`.
    fn joined(&self) -> DirectoryKind {
        if self.place == Some(MetaPlace::Directory) && self.has("member") {
            return Kind::OverwrittenServer;
        }
        if !self.has(format::NAME) && self.has_data {
            Kind::NodeWithoutFormat
        } else {
            Kind::Node(self.roles)
        }
    }

    /// Returns the kind by `format`, without `cluster.toml`.
    fn with_format(&self) -> DirectoryKind {
        let [meta, blocks, key] = ["meta", "blocks", "node.key"].map(|name| self.has(name));
        let is_of_server = blocks && self.has("secret.key");
        let is_of_node = self.has("node.pem") || self.has("ca.pem");
        // A failed join has left these in the store of a server.
        if is_of_node && !is_of_server {
            return Kind::NodeWithoutIdentity;
        }
        match self.place {
            Some(MetaPlace::Members) if !blocks => Kind::Begun(MetaPlace::Members),
            Some(MetaPlace::Directory) if self.has("member") => Kind::OverwrittenServer,
            Some(place) if !meta && !blocks && !self.has("scrub") => Kind::Begun(place),
            Some(MetaPlace::Directory) if key && !blocks => Kind::UnfinishedInit,
            _ => Kind::Server,
        }
    }

    fn without_a_deciding_file(&self) -> Option<DirectoryKind> {
        let mut names = self.names.iter().filter(|name| !is_ignored(name));
        let first = names.clone().next()?;
        if self.has_data {
            return Some(Kind::StoreWithoutFormat);
        }
        if names.clone().all(|name| OF_JOINING.contains(&&**name)) {
            return Some(Kind::Joining);
        }
        if names.all(|name| is_of_backup(name)) {
            return Some(Kind::Backup);
        }
        if !self.parts.is_empty() && self.parts.iter().all(Part::is_of_machine) {
            Some(Kind::MachineParts)
        } else {
            Some(Kind::Foreign(first.clone()))
        }
    }
}

impl Part {
    /// Returns true if this is empty, or what `cairn node` makes there.
    fn is_of_machine(&self) -> bool {
        self.kinds.iter().all(|kind| match kind {
            Kind::Node(roles) => roles.contains(self.role),
            Kind::Joining => true,
            Kind::Begun(place) => (self.role, *place) == (Role::Master, MetaPlace::Members),
            _ => false,
        })
    }
}

fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name)
}

fn is_of_parts(name: &str) -> bool {
    name == "machine.new" || Role::ALL.iter().any(|role| directory_of_role(*role) == name)
}

fn is_of_backup(name: &str) -> bool {
    OF_BACKUP.contains(&name) || (name.starts_with(HEAD) && name.ends_with(".part"))
}

/// Returns the text of a small file; nothing if it cannot be read.
fn text_of(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

fn roles_in(text: &str) -> Roles {
    let table: Option<toml::Table> = toml::from_str(text).ok();
    let words = table.as_ref().and_then(|table| table.get("roles")?.as_array());
    let words = words.into_iter().flatten().filter_map(toml::Value::as_str);
    words.filter_map(|word| word.parse::<Role>().ok()).collect()
}

/// Returns true if there are files of an engine or of a block store.
fn has_files_of_store(path: &Path) -> bool {
    let has = |directory: &str, is_own: fn(&str) -> bool| {
        let entries = fs::read_dir(path.join(directory)).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(is_own))
    };
    has("meta", |name| name == "rows.redb" || name.starts_with("log-"))
        || has("blocks", |name| name.ends_with(".seg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "cairn 1\ncluster 0123456789abcdef0123456789abcdef\ndisk \
                          fedcba9876543210fedcba9876543210\n";

    /// The kinds of a directory with these files, each with a text, or directories.
    fn kinds(entries: &[(&str, &str)]) -> Vec<DirectoryKind> {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in entries {
            let path = place.path().join(name.trim_end_matches('/'));
            if name.ends_with('/') {
                fs::create_dir_all(path).unwrap()
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        DirectoryKind::of(place.path()).unwrap()
    }

    fn node(role: &str) -> String {
        format!("version = 1\nnode = \"0\"\nroles = [\"{role}\"]\n")
    }

    #[test]
    fn nothing_is_what_nobody_needs() {
        assert_eq!(DirectoryKind::of(Path::new("/nonexistent/directory")).unwrap(), []);
        assert_eq!(kinds(&[]), []);
        assert_eq!(kinds(&[("lost+found/", ""), ("lock", "7\n"), ("format.new", "")]), []);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DirectoryKind::of(file.path()).is_err());
    }

    #[test]
    fn each_thing_of_cairn_is_known() {
        let raft = &format!("{FORMAT}meta raft\n");
        let postgres = &format!("{FORMAT}meta postgres\n");
        let [master, disk] = &["master", "chunkserver"].map(node);
        let members = Kind::Begun(MetaPlace::Members);
        let store = [("format", FORMAT), ("secret.key", ""), ("meta/log-0", ""), ("blocks/", "")];
        for (entries, kind) in [
            (&store[..], Kind::Server),
            (&store[..3], Kind::Server),
            (&[("format", FORMAT), ("blocks/", "")], Kind::Server),
            (&[("format", "damaged")], Kind::Server),
            (&[("format", raft), ("meta/log-0", ""), ("blocks/", "")], Kind::Server),
            (&[("format", FORMAT), ("secret.key", "")], Kind::Begun(MetaPlace::Directory)),
            (&[("format", postgres), ("lock", "")], Kind::Begun(MetaPlace::Postgres)),
            (&[("format", raft), ("node.key", ""), ("meta/log-0", ""), ("member", "")], members),
            (&[("format", FORMAT), ("node.key", ""), ("meta/log-0", "")], Kind::UnfinishedInit),
            (&[("format", FORMAT), ("member", ""), ("blocks/", "")], Kind::OverwrittenServer),
            (
                &[("format", FORMAT), ("member", ""), ("blocks/", ""), ("cluster.toml", master)],
                Kind::OverwrittenServer,
            ),
            (&[("cluster.toml", master)], Kind::Node(Role::Master.into())),
            (
                &[("cluster.toml", master), ("format", raft), ("member", "")],
                Kind::Node(Role::Master.into()),
            ),
            (
                &[("cluster.toml", disk), ("format", FORMAT), ("blocks/00000001.seg", "")],
                Kind::Node(Role::Chunkserver.into()),
            ),
            (&[("cluster.toml", "damaged")], Kind::Node(Roles::NONE)),
            (&[("cluster.toml", disk), ("blocks/1.seg", "")], Kind::NodeWithoutFormat),
            (&[("format", FORMAT), ("blocks/", ""), ("node.pem", "")], Kind::NodeWithoutIdentity),
            (&[("format", raft), ("ca.pem", ""), ("meta/log-0", "")], Kind::NodeWithoutIdentity),
            (&[("node.key", "")], Kind::Joining),
            (&[("node.key", ""), ("ca.pem", ""), ("cluster.toml.new", "")], Kind::Joining),
            (&[("meta/rows.redb", ""), ("secret.key", "")], Kind::StoreWithoutFormat),
            (&[("blocks/1.seg", "")], Kind::StoreWithoutFormat),
            (&[("head", "{\"format\":\"cairn backup\"}"), ("README", "")], Kind::Backup),
            (&[("packs/", ""), ("index/", "")], Kind::Backup),
            (&[("head.01ab.part", "")], Kind::Backup),
            (&[("head", "of a statue")], Kind::Foreign("head".into())),
            (&[("lost+found/", ""), ("thesis.txt", "")], Kind::Foreign("thesis.txt".into())),
            (&[("blocks/", "")], Kind::Foreign("blocks".into())),
            (&[("machine.toml", "")], Kind::Machine),
            (&[("adoption.toml", "damaged"), ("format", FORMAT)], Kind::Adoption(None)),
        ] {
            assert_eq!(kinds(entries), [kind], "{entries:?}");
        }
    }

    #[test]
    fn a_server_on_its_way_is_neither_a_server_nor_a_machine() {
        let store = [("format", FORMAT), ("secret.key", ""), ("meta/log-0", ""), ("blocks/", "")];
        let step = |step: &str| {
            format!("version = 1\nstep = \"{step}\"\nhost = \"a\"\nport = 7\nreplicas = 3\n")
        };
        for (word, expected) in [
            ("preparing", AdoptionStep::Preparing),
            ("moving", AdoptionStep::Moving),
            ("undoing", AdoptionStep::Undoing),
        ] {
            let text = step(word);
            let more = [("adoption.toml", &*text), ("machine.toml", ""), ("disk/blocks/", "")];
            let entries = [&store[..], &more].concat();
            assert_eq!(kinds(&entries), [Kind::Adoption(Some(expected))], "{word}");
        }
        for word in ["adopted", "finalizing"] {
            let text = step(word);
            let rest = [("secret.key", ""), ("meta/log-0", ""), ("disk/format", FORMAT)];
            let more = [("adoption.toml", &*text), ("machine.toml", "")];
            assert_eq!(kinds(&[&rest[..], &more].concat()), [Kind::Machine], "{word}");
        }
    }

    #[test]
    fn a_machine_may_have_disks_before_it_has_a_file() {
        let [master, disk] = &["master", "chunkserver"].map(node);
        assert_eq!(kinds(&[("disk/lost+found/", "")]), [Kind::MachineParts]);
        let joined = [("master/cluster.toml", &**master), ("gateway/node.key", ""), ("disk/", "")];
        assert_eq!(kinds(&joined), [Kind::MachineParts]);
        for other in [
            ("master/cluster.toml", &**disk),
            ("disk/format", FORMAT),
            ("gateway/thesis.txt", ""),
            ("disk", "a file"),
        ] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join(other.0);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, other.1).unwrap();
            match DirectoryKind::of(place.path()) {
                Ok(kinds) => assert!(matches!(kinds[..], [Kind::Foreign(_)]), "{kinds:?}"),
                Err(failure) => assert_eq!(other.0, "disk", "{failure}"),
            }
        }
    }

    #[test]
    fn two_things_in_one_directory_are_both_known() {
        let store = [("format", FORMAT), ("secret.key", ""), ("meta/log-0", ""), ("blocks/", "")];
        let machine = [&store[..], &[("machine.toml", ""), ("master/", "")]].concat();
        assert_eq!(kinds(&machine), [Kind::Machine, Kind::Server]);
        let backup = [&store[..], &[("head", "{\"format\":\"cairn backup\"}")]].concat();
        assert_eq!(kinds(&backup), [Kind::Server, Kind::Backup]);
        // `cairn cluster join` failed there.
        let joining = [&store[..], &[("node.key", "")]].concat();
        assert_eq!(kinds(&joining), [Kind::Server]);
    }
}
