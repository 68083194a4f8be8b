//! A container image as an OCI archive: one layer, made without a daemon.
//!
//! The layer has the program, the libraries that it is linked with, and nothing else: no shell and
//! no package manager. It runs as a user without a name elsewhere, and its root can be read-only.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::date::rfc3339;
use super::deb::Release;
use super::program::{Program, said};
use super::tree::{Tree, gzip};

/// User of the container, and owner of `/data`.
const USER: u64 = 65_532;

/// Default arguments of `cairn` in a container.
const COMMAND: [&str; 6] = ["server", "/data", "--s3", "0.0.0.0:9000", "--http", "0.0.0.0:8080"];

/// Returns the bytes of the archive.
pub fn archive(
    root: &Path,
    release: &Release,
    program: &Program,
    licences: &str,
    bill: &str,
) -> io::Result<Vec<u8>> {
    let mut files = layer(&program.bytes, &libraries(&program.path)?);
    files.file("usr/share/doc/cairn/licences", 0o644, licences);
    files.file("usr/share/doc/cairn/sbom.cdx.json", 0o644, bill);
    files.file("usr/share/doc/cairn/LICENSE", 0o644, fs::read(root.join("LICENSE"))?);
    packed(&files, release)
}

/// A library of the system: its path in the image, its bytes, and Debian's facts about its package.
pub struct Library {
    pub path: String,
    pub bytes: Vec<u8>,
    pub package: String,
    pub status: String,
    pub copyright: Vec<u8>,
}

/// Returns the shared libraries of a program of this machine.
fn libraries(program: &Path) -> io::Result<Vec<Library>> {
    let linked = said(Command::new("ldd").arg(program))?;
    // `libc.so.6 => /lib/… (0x…)`, and the loader, `/lib64/… (0x…)`.
    let paths = linked.lines().filter_map(|line| {
        line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned)
    });
    paths.map(|path| library(&path)).collect()
}

fn library(path: &str) -> io::Result<Library> {
    let real = fs::canonicalize(path)?;
    let search = |path: &str| said(Command::new("dpkg-query").args(["--search", path]));
    let real_path = real.to_string_lossy().into_owned();
    // Debian's database has some paths from before /lib became a link.
    let owner = search(&real_path).or_else(|_| search(real_path.trim_start_matches("/usr")))?;
    let package = owner.split(':').next().unwrap_or_default().to_owned();
    if package.is_empty() {
        return Err(Error::other(format!("{path}: belongs to no package")));
    }
    let status = said(Command::new("dpkg-query").args(["--status", &package]))?;
    let copyright = fs::read(format!("/usr/share/doc/{package}/copyright"))?;
    let path = path.trim_start_matches('/').to_owned();
    Ok(Library { path, bytes: fs::read(&real)?, package, status, copyright })
}

/// Returns the files of the image.
pub fn layer(program: &[u8], libraries: &[Library]) -> Tree {
    let mut files = Tree::default();
    files.file("usr/bin/cairn", 0o755, program);
    for library in libraries {
        files.file(&library.path, 0o755, library.bytes.as_slice());
        let Library { package, status, copyright, .. } = library;
        // Scanners of images look here for packages of Debian.
        files.file(&format!("var/lib/dpkg/status.d/{package}"), 0o644, status.as_str());
        let path = format!("usr/share/doc/{package}/copyright");
        files.file(&path, 0o644, copyright.as_slice());
    }
    let user = format!("root:x:0:0::/:/nologin\ncairn:x:{USER}:{USER}::/data:/nologin\n");
    files.file("etc/passwd", 0o644, user);
    files.file("etc/group", 0o644, format!("root:x:0:\ncairn:x:{USER}:\n"));
    files.file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n");
    files.directory("data", 0o700, USER);
    files.directory("tmp", 0o1777, 0);
    files
}

/// Makes an OCI archive of one layer.
pub fn packed(files: &Tree, release: &Release) -> io::Result<Vec<u8>> {
    let tar = files.tar("", release.time)?;
    let layer = gzip(&tar)?;
    let created = rfc3339(release.time);
    let config = json!({
        "architecture": release.architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/cairn"],
            "Cmd": COMMAND,
            "WorkingDir": "/data",
            "Env": ["PATH=/usr/bin", "HOME=/data"],
            "ExposedPorts": {"8080/tcp": {}, "9000/tcp": {}},
            "Volumes": {"/data": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels(release),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&tar)]},
        "history": [{"created": created, "created_by": "cargo xtask image"}],
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", &config),
        "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut entry = described("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    entry["platform"] = json!({"architecture": release.architecture, "os": "linux"});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    let mut archive = Tree::default();
    archive.file("oci-layout", 0o644, json!({"imageLayoutVersion": "1.0.0"}).to_string());
    archive.file("index.json", 0o644, index.to_string());
    for blob in [config, manifest, layer] {
        let name = digest(&blob).replace(':', "/");
        archive.file(&format!("blobs/{name}"), 0o644, blob);
    }
    archive.tar("", release.time)
}

fn labels(release: &Release) -> Value {
    json!({
        "org.opencontainers.image.title": "cairn",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
    })
}

fn described(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
