//! Packages and images have what they should, and the same bytes each time.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use xtask::dist::date::{rfc3339, rfc5322};
use xtask::dist::deb::{Deb, Release};
use xtask::dist::image::{Library, layer, packed};
use xtask::dist::parts::{bill, linked};
use xtask::dist::program::{build_id, oldest_libc};
use xtask::dist::sums::{self, NAMESPACE, SUMS};
use xtask::dist::tree::Tree;

fn release() -> Release {
    Release {
        version: "0.1.0".to_owned(),
        architecture: "amd64",
        maintainer: "A <a@example.org>".to_owned(),
        time: 1_794_000_000,
    }
}

fn package() -> Deb {
    let mut files = Tree::default();
    files.file("usr/bin/cairn", 0o755, *b"program");
    files.file("etc/cairn/server.conf", 0o600, *b"# options\n");
    files.link("usr/share/doc/other", "cairn");
    Deb {
        name: "cairn-client",
        summary: "a summary",
        description: "A line.\n\nAnother one.",
        section: "utils",
        relations: "Depends: libc6 (>= 2.34)\n".to_owned(),
        scripts: vec![("postinst", "#!/bin/sh\n".to_owned())],
        files,
    }
}

#[test]
fn a_package_is_what_dpkg_reads() {
    let bytes = package().bytes(&release()).unwrap();
    assert_eq!(bytes, package().bytes(&release()).unwrap(), "the same again");
    let folder = std::env::temp_dir().join(format!("cairn-deb-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.deb");
    std::fs::write(&path, bytes).unwrap();
    let say = |option: &str| {
        let done = Command::new("dpkg-deb").arg(option).arg(&path).output();
        done.ok().map(|done| String::from_utf8_lossy(&done.stdout).into_owned())
    };
    // Elsewhere than on Debian only the bytes are compared.
    if let (Some(fields), Some(contents)) = (say("--field"), say("--contents")) {
        for line in [
            "Package: cairn-client",
            "Version: 0.1.0",
            "Depends: libc6 (>= 2.34)",
            "Description: a summary",
            " A line.",
            " .",
            " Another one.",
        ] {
            assert!(fields.lines().any(|said| said == line), "{line}: {fields}");
        }
        let listed = |mode: &str, path: &str| {
            contents.lines().any(|line| line.starts_with(mode) && line.ends_with(path))
        };
        assert!(listed("drwxr-xr-x root/root", "./usr/bin/"), "{contents}");
        assert!(listed("-rwxr-xr-x root/root", "./usr/bin/cairn"), "{contents}");
        assert!(listed("-rw------- root/root", "./etc/cairn/server.conf"), "{contents}");
        assert!(listed("lrwxrwxrwx root/root", "other -> cairn"), "{contents}");
        let control = Command::new("dpkg-deb").arg("-I").arg(&path).arg("conffiles").output();
        assert_eq!(control.unwrap().stdout, b"/etc/cairn/server.conf\n");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The files of a tar.
fn unpacked(bytes: &[u8]) -> BTreeMap<String, (u64, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().expect("a good archive").map(|entry| {
        let mut entry = entry.expect("a good archive");
        let path = entry.path().expect("a good archive").display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("a good archive");
        (path, (entry.header().uid().expect("a good archive"), bytes))
    });
    entries.collect()
}

#[test]
fn an_image_leads_from_its_index_to_one_layer() {
    let library = Library {
        path: "lib/libc.so.6".to_owned(),
        bytes: b"libc".to_vec(),
        package: "libc6".to_owned(),
        status: "Package: libc6\n".to_owned(),
        copyright: b"LGPL".to_vec(),
    };
    let files = layer(b"program", &[library]);
    let bytes = packed(&files, &release()).unwrap();
    assert_eq!(bytes, packed(&files, &release()).unwrap(), "the same again");
    let archive = unpacked(&bytes);
    let blob = |described: &Value| {
        let digest = described["digest"].as_str().unwrap();
        let (_, bytes) = &archive[&format!("blobs/{}", digest.replace(':', "/"))];
        let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, format!("sha256:{sum}"));
        assert_eq!(described["size"], bytes.len());
        bytes.clone()
    };
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    assert_eq!(read(&archive["oci-layout"].1), json!({"imageLayoutVersion": "1.0.0"}));
    let index = read(&archive["index.json"].1);
    let manifest = read(&blob(&index["manifests"][0]));
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let config = read(&blob(&manifest["config"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    let mut layer = Vec::new();
    let packed = blob(&manifest["layers"][0]);
    GzDecoder::new(packed.as_slice()).read_to_end(&mut layer).unwrap();
    let sum: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{sum}")]));
    let layer = unpacked(&layer);
    assert_eq!(layer["usr/bin/cairn"], (0, b"program".to_vec()));
    assert_eq!(layer["lib/libc.so.6"].1, b"libc");
    assert_eq!(layer["data/"].0, 65_532, "the user of the image may write here");
    assert!(layer.contains_key("var/lib/dpkg/status.d/libc6"));
}

#[test]
fn a_bill_of_materials_has_what_is_linked_only() {
    let package = |name: &str| {
        let path = format!("/src/{name}/Cargo.toml");
        json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
            "manifest_path": path})
    };
    let on = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
    let metadata = json!({
        "packages": [package("cairn"), package("a"), package("b"), package("builder"),
            package("tester"), package("apart")],
        "resolve": {"nodes": [
            {"id": "cairn", "deps": [on("a", Value::Null), on("tester", json!("dev"))]},
            {"id": "a", "deps": [on("b", Value::Null), on("builder", json!("build"))]},
            {"id": "b", "deps": [on("a", Value::Null)]},
        ]},
    });
    let sum = ("b".to_owned(), "1.0.0".to_owned());
    let parts = linked(&metadata, &BTreeMap::from([(sum, "ab12".to_owned())]));
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "cairn"]);
    let bill: Value = serde_json::from_str(&bill(&parts, "0.1.0").unwrap()).unwrap();
    assert_eq!(bill["components"][1]["purl"], "pkg:cargo/b@1.0.0");
    assert_eq!(bill["components"][1]["hashes"][0]["content"], "ab12");
    assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
}

#[test]
fn tools_of_programs_are_read() {
    let symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) write\n0000 DF *UND* 0000 (GLIBC_2.34) stat\n\
        0000 DF *UND* 0000 (GLIBC_2.9) pipe2\n0000 w DF *UND* 0000 (GCC_3.0) _Unwind_Resume\n";
    assert_eq!(oldest_libc(symbols).as_deref(), Some("2.34"));
    assert_eq!(oldest_libc("no symbols"), None);
    let notes = "  GNU  0x14  NT_GNU_BUILD_ID\n    Build ID: 0a1b2c\n";
    assert_eq!(build_id(notes).as_deref(), Some("0a1b2c"));
    assert_eq!(build_id("Build ID: ../x"), None);
}

#[test]
fn times_are_written_as_dates() {
    for (time, mail, web) in [
        (0, "Thu, 01 Jan 1970 00:00:00 +0000", "1970-01-01T00:00:00Z"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 +0000", "2000-02-29T00:00:00Z"),
        (1_709_210_096, "Thu, 29 Feb 2024 12:34:56 +0000", "2024-02-29T12:34:56Z"),
        (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 +0000", "2100-02-28T23:59:59Z"),
        (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 +0000", "2026-12-31T23:59:59Z"),
    ] {
        assert_eq!(rfc5322(time), mail);
        assert_eq!(rfc3339(time), web);
    }
}

/// Verifies a signature as docs/operating.md says.
fn is_signed(folder: &Path) -> std::io::Result<bool> {
    let signature = format!("{SUMS}.sig");
    let sums = fs::File::open(folder.join(SUMS))?;
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-Y", "verify", "-f", "builders", "-I", "builder", "-n", NAMESPACE]);
    keygen.args(["-s", &signature]).current_dir(folder).stdin(sums);
    Ok(keygen.output()?.status.success())
}

#[test]
fn what_is_made_is_summed_up_and_signed() {
    let folder = std::env::temp_dir().join(format!("cairn-sums-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in [("b.deb", "two"), ("a.deb", "one"), ("key", ""), ("builders", "")] {
        fs::write(folder.join(name), text).unwrap();
    }
    fs::remove_file(folder.join("key")).unwrap();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", "key"]).current_dir(&folder);
    assert!(keygen.status().unwrap().success());
    let public = fs::read_to_string(folder.join("key.pub")).unwrap();
    fs::write(folder.join("builders"), format!("builder {public}")).unwrap();
    // Twice: a former signature is replaced.
    for _ in 0..2 {
        sums::write(&folder).unwrap();
        sums::sign(&folder, &folder.join("key")).unwrap();
    }
    let text = fs::read_to_string(folder.join(SUMS)).unwrap();
    let names: Vec<&str> = text.lines().map(|line| &line[66..]).collect();
    assert_eq!(names, ["a.deb", "b.deb"]);
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", SUMS]).current_dir(&folder);
    assert!(check.output().unwrap().status.success());
    assert!(is_signed(&folder).unwrap());
    fs::write(folder.join(SUMS), text.replacen('1', "2", 1).replacen('a', "b", 1)).unwrap();
    assert!(!is_signed(&folder).unwrap());
    sums::sign(&folder, &folder.join("no-key")).unwrap_err();
    fs::remove_dir_all(&folder).unwrap();
}
