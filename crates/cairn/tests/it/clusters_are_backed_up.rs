//! A backup of a cluster that runs, through a gateway.

use std::fs;

use crate::cluster::{Cluster, eventually};
use crate::support::{KEY, SECRET, Server, bytes, cairn, run};

#[test]
fn through_a_gateway_and_restored_on_one_machine() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let gateway = &cluster.gateway;
    eventually(|| {
        let (code, ..) = run(&mut gateway.client(&["bucket", "create", "photos"]));
        (code == 0).then_some(())
    });
    eventually(|| gateway.put("photos/large", &bytes(1, 9 << 20)).then_some(()));
    // Several pages of rows.
    for n in 0..200u64 {
        assert!(gateway.put(&format!("photos/{n}"), &bytes(n + 2, 100)));
    }
    let backup = dir.path().join("backup");
    let (place, keys) = (backup.to_str().unwrap(), cluster.master.to_str().unwrap());
    let pass = dir.path().join("pass");
    fs::write(&pass, "correct horse\n").unwrap();
    let pass = ["--passphrase-file", pass.to_str().unwrap()];
    let create = ["backup", "create", place, "--keys", keys];
    gateway.ok(&[&create[..], &pass].concat());
    assert!(gateway.put("photos/later", b"later"));
    let (code, _, said) = run(&mut gateway.client(&[&create[..], &pass].concat()));
    assert!(code == 0 && said.contains("cairn: 0 of"), "{said}");
    assert_eq!(gateway.ok(&["backup", "holds"]), "");
    let listed = gateway.ok(&[&["backup", "list", place, "--json"][..], &pass].concat());
    let first: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!(first["files"], serde_json::json!(["ca.key", "secret.key"]));
    let dump = dir.path().join("dump");
    gateway.ok(&["meta", "dump", dump.to_str().unwrap()]);

    let new = dir.path().join("new");
    let new_dir = new.to_str().unwrap();
    let restore = ["restore", place, new_dir, "--state", first["id"].as_str().unwrap()];
    let (code, _, said) = run(&mut cairn(&[&restore[..], &pass].concat()));
    assert_eq!(code, 0, "{said}");
    let (code, stdout, _) = run(&mut cairn(&["fsck", new_dir]));
    assert_eq!(code, 0, "{stdout}");
    let restored = Server::start(&new, &[]);
    assert_eq!(restored.get("photos/large").unwrap(), bytes(1, 9 << 20));
    assert_eq!(restored.get("photos/199").unwrap(), bytes(201, 100));
    assert!(restored.get("photos/later").is_err());

    // And one bucket, back into the cluster.
    gateway.ok(&["rm", "photos/large"]);
    let mut command = gateway.client(&["restore", place, "--to-server", "--bucket", "photos"]);
    let (code, _, said) = run(command.args(pass).env("CAIRN_KEY", KEY).env("CAIRN_SECRET", SECRET));
    assert!(code == 0 && said.contains("1 files"), "{said}");
    assert_eq!(gateway.get("photos/large").unwrap(), bytes(1, 9 << 20));
}
