use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use cairn_base::{Clock, Error, NodeId, Pin, Role, Roles};
use cairn_cluster::identity::{Directory, JoinResult, KnownNode};
use tempfile::TempDir;

use crate::support::{CLUSTER, Cluster, MASTER};

struct Kept {
    cluster: Cluster,
    place: TempDir,
}

impl Kept {
    fn directory(&self) -> Directory {
        Directory::open(&self.place.path().join("identity")).unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join("identity").join(name)
    }

    fn load(&self) -> Result<Option<cairn_cluster::identity::DirectoryContents>, Error> {
        self.directory().load(self.cluster.clock.now())
    }
}

/// A node that has joined and been written to disk.
fn kept() -> Kept {
    let kept = Kept { cluster: Cluster::new(), place: TempDir::new().unwrap() };
    let key = kept.directory().key().unwrap();
    assert!(kept.load().unwrap().is_none(), "not joined yet");
    let pin = Pin { key: key.public().hash(), roles: Role::Master.into() };
    let joined = JoinResult {
        node: NodeId(0xabc),
        roles: Roles::from(Role::Gateway).with(Role::Chunkserver),
        certificate: kept.cluster.issue(NodeId(0xabc), Role::Gateway, &key),
        authority: kept.cluster.authority(),
        masters: vec![KnownNode { node: MASTER, pin }],
    };
    kept.directory().save(&joined, &["m1:7100".to_owned()]).unwrap();
    kept
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_was_written_is_read() {
    let kept = kept();
    let loaded = kept.load().unwrap().unwrap();
    assert_eq!((loaded.identity.node(), loaded.identity.cluster()), (NodeId(0xabc), CLUSTER));
    assert_eq!(loaded.roles, Roles::from(Role::Gateway).with(Role::Chunkserver));
    assert_eq!(loaded.addresses, ["m1:7100"]);
    assert_eq!(loaded.masters[0].node, MASTER);
    let key = kept.directory().key().unwrap();
    assert_eq!(key.public(), loaded.identity.key().public(), "the key is made once");
    assert_eq!(loaded.masters[0].pin.key, key.public().hash());
    let mut names: Vec<_> = fs::read_dir(kept.path(".")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names.into_iter().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ca.pem", "cluster.toml", "node.key", "node.pem"]);
}

#[test]
fn private_keys_are_for_the_owner_only() {
    let kept = kept();
    kept.directory().save_ca(&kept.cluster.ca).unwrap();
    assert_eq!(mode(&kept.path("node.key")), 0o600);
    assert_eq!(mode(&kept.path("ca.key")), 0o600);
    assert_eq!(mode(&kept.path(".")), 0o700);
    for name in ["node.key", "ca.key"] {
        fs::set_permissions(kept.path(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    assert!(matches!(kept.load(), Err(Error::Denied(text)) if text.contains("chmod 600")));
    assert!(matches!(kept.directory().load_ca(CLUSTER), Err(Error::Denied(_))));
}

#[test]
fn the_authority_reads_back() {
    let kept = kept();
    assert!(matches!(kept.directory().load_ca(CLUSTER), Err(Error::NotFound(_))));
    kept.directory().save_ca(&kept.cluster.ca).unwrap();
    let ca = kept.directory().load_ca(CLUSTER).unwrap();
    assert_eq!(ca.authority().key(), kept.cluster.authority().key());
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let check = |spoil: &dyn Fn(&Kept)| {
        let kept = kept();
        spoil(&kept);
        assert!(kept.load().is_err());
    };
    for name in ["ca.pem", "node.pem", "node.key"] {
        check(&|kept| fs::remove_file(kept.path(name)).unwrap());
        check(&|kept| fs::write(kept.path(name), "nothing").unwrap());
        // Of another node.
        check(&|kept| fs::copy(self::kept().path(name), kept.path(name)).map(|_| ()).unwrap());
    }
    let edit = |kept: &Kept, from: &str, to: &str| {
        let text = fs::read_to_string(kept.path("cluster.toml")).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(kept.path("cluster.toml"), text.replacen(from, to, 1)).unwrap();
    };
    check(&|kept| edit(kept, "version = 1", "version = 2"));
    check(&|kept| edit(kept, "abc", "abd"));
    check(&|kept| edit(kept, "gateway", "getaway"));
    check(&|kept| edit(kept, "c1\"", "c2\""));
    check(&|kept| edit(kept, "addresses", "adresses"));
    check(&|kept| kept.cluster.clock.advance(Duration::from_secs(31 * 24 * 3600)));
}

#[test]
fn a_write_that_was_interrupted_leaves_the_former_file() {
    let kept = kept();
    fs::write(kept.path("node.pem.new"), "half").unwrap();
    fs::write(kept.path("cluster.toml.new"), "half").unwrap();
    let loaded = kept.load().unwrap().unwrap();
    let key = kept.directory().key().unwrap();
    kept.cluster.clock.advance(Duration::from_secs(60));
    let renewed = kept.cluster.issue(NodeId(0xabc), Role::Gateway, &key);
    kept.directory().save_node_certificate(&renewed).unwrap();
    assert_eq!(kept.load().unwrap().unwrap().identity.certificate(), renewed);
    assert_ne!(loaded.identity.certificate(), renewed);
}

/// Wherever a change of its number ends early, the node is the former one or the new one.
#[test]
fn a_change_of_the_number_that_was_interrupted_leaves_a_whole_identity() {
    const NEXT: NodeId = NodeId(0xdef);
    let kept = kept();
    let (now, key) = (kept.cluster.clock.now(), kept.directory().key().unwrap());
    let number = || kept.load().unwrap().unwrap().identity.node();
    let certificate = kept.cluster.issue(NEXT, Role::Gateway, &key);
    let former = fs::read(kept.path("cluster.toml")).unwrap();
    kept.directory().renumber(NEXT, &certificate).unwrap();
    assert_eq!(number(), NEXT);
    assert!(kept.directory().is_renumbered(now).unwrap());
    // The power failed before the number was noted.
    let noted = fs::read(kept.path("cluster.toml")).unwrap();
    fs::write(kept.path("cluster.toml"), former).unwrap();
    assert_eq!(number(), NodeId(0xabc));
    assert!(!kept.directory().is_renumbered(now).unwrap());
    fs::write(kept.path("cluster.toml"), noted).unwrap();
    // The masters that are noted meanwhile change nothing of that.
    kept.directory().remember_masters(&[], &["m2:7100".to_owned()]).unwrap();
    assert_eq!(number(), NEXT);
    kept.directory().end_renumbering().unwrap();
    assert_eq!(number(), NEXT);
    assert!(!kept.directory().is_renumbered(now).unwrap());
    assert!(!kept.path("node.next.pem").exists());
}
