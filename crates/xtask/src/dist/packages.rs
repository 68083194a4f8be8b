//! The content of each Debian package.

use std::fs;
use std::io;
use std::path::Path;

use super::date::rfc5322;
use super::deb::{Deb, Release};
use super::program::Program;
use super::tree::{Tree, gzip};

/// Path of the program in units of this repository, and in packages.
const BY_HAND: &str = "/usr/local/bin/cairn";
const PACKAGED: &str = "/usr/bin/cairn";

/// Units of roles and of backups; the unit of mounts comes with the client.
const UNITS: [&str; 7] = [
    "cairn-server.service",
    "cairn-node.service",
    "cairn-master.service",
    "cairn-chunkserver@.service",
    "cairn-gateway.service",
    "cairn-backup.service",
    "cairn-backup.timer",
];
const MOUNT_UNIT: &str = "cairn-mount@.service";

/// Texts about the program, made by it or from its sources.
pub struct Texts {
    pub licences: String,
    pub bill: String,
    /// Files by path, such as shell completions and manual pages.
    pub made: Vec<(String, Vec<u8>)>,
}

/// Makes the packages of a release: of the client, of the server, of debug symbols.
pub fn all(
    root: &Path,
    release: &Release,
    program: &Program,
    texts: &Texts,
) -> io::Result<[Deb; 3]> {
    let client = client(root, release, program, texts)?;
    let server = server(root, release)?;
    let symbols = symbols(release, program)?;
    Ok([client, server, symbols])
}

fn client(root: &Path, release: &Release, program: &Program, texts: &Texts) -> io::Result<Deb> {
    let mut files = Tree::default();
    let name = "cairn-client";
    files.file("usr/bin/cairn", 0o755, program.bytes.as_slice());
    files.file("usr/sbin/mount.cairn", 0o755, fs::read(root.join("contrib/mount.cairn"))?);
    unit(&mut files, root, MOUNT_UNIT)?;
    files.directory("etc/cairn", 0o755, 0);
    documents(&mut files, root, name, release)?;
    let documents = format!("usr/share/doc/{name}");
    files.file(&format!("{documents}/licences.gz"), 0o644, gzip(texts.licences.as_bytes())?);
    files.file(&format!("{documents}/sbom.cdx.json"), 0o644, texts.bill.as_str());
    let example = fs::read(root.join("contrib/etc/mount-example.conf"))?;
    files.file(&format!("{documents}/examples/mount-example.conf"), 0o644, example);
    for (path, bytes) in &texts.made {
        files.file(path, 0o644, bytes.as_slice());
    }
    let libc = &program.libc;
    Ok(Deb {
        name,
        summary: "one store for S3, HTTP, FUSE and NFS: commands and mounts",
        description: "Cairn keeps files on the disks of one or many machines and serves them\n\
            through S3, HTTP, FUSE and NFS at the same moment.\n\n\
            This package has the program, which puts and gets files, mounts stores\n\
            and administers servers, and a unit for mounts.",
        section: "utils",
        relations: format!(
            "Depends: libc6 (>= {libc}), libgcc-s1 (>= 4.2)\nRecommends: fuse3\n\
             Suggests: cairn-server\n"
        ),
        scripts: scripts(root, name)?,
        files,
    })
}

fn server(root: &Path, release: &Release) -> io::Result<Deb> {
    let mut files = Tree::default();
    let name = "cairn-server";
    for name in UNITS {
        unit(&mut files, root, name)?;
    }
    let users = fs::read(root.join("contrib/systemd/cairn.sysusers"))?;
    files.file("usr/lib/sysusers.d/cairn.conf", 0o644, users);
    for role in ["server", "node", "master", "chunkserver", "gateway"] {
        // Only root may read it: it may contain credentials.
        let options = fs::read(root.join(format!("contrib/etc/{role}.conf")))?;
        files.file(&format!("etc/cairn/{role}.conf"), 0o600, options);
        // The user of the units reads it, and everybody may: secrets are in the files that it
        // names.
        let options = fs::read(root.join(format!("contrib/etc/{role}.toml")))?;
        files.file(&format!("etc/cairn/{role}.toml"), 0o644, options);
    }
    let example = fs::read(root.join("contrib/etc/backup-example.conf"))?;
    let path = format!("usr/share/doc/{name}/examples/backup-example.conf");
    files.file(&path, 0o644, example);
    for folder in ["prometheus", "grafana"] {
        examples(&mut files, &root.join("contrib").join(folder), name)?;
    }
    documents(&mut files, root, name, release)?;
    let version = &release.version;
    Ok(Deb {
        name,
        summary: "one store for S3, HTTP, FUSE and NFS: servers",
        description: "Cairn keeps files on the disks of one or many machines and serves them\n\
            through S3, HTTP, FUSE and NFS at the same moment.\n\n\
            This package has units for a server, for machines of a small cluster, and\n\
            for its masters, chunkservers and gateways, for backups each night, and the\n\
            user that they run as. Nothing is started by the installation.",
        section: "net",
        relations: format!(
            "Depends: cairn-client (= {version}), systemd | systemd-standalone-sysusers\n"
        ),
        scripts: scripts(root, name)?,
        files,
    })
}

fn symbols(release: &Release, program: &Program) -> io::Result<Deb> {
    let mut files = Tree::default();
    let (name, version) = ("cairn-client-dbgsym", &release.version);
    let (start, rest) = program.build_id.split_at(2);
    let path = format!("usr/lib/debug/.build-id/{start}/{rest}.debug");
    files.file(&path, 0o644, program.debug.as_slice());
    files.link(&format!("usr/share/doc/{name}"), "cairn-client");
    Ok(Deb {
        name,
        summary: "debug symbols for cairn-client",
        description: "Debuggers and profilers show names and lines of the program with them.",
        section: "debug",
        relations: format!(
            "Depends: cairn-client (= {version})\nAuto-Built-Package: debug-symbols\n\
             Build-Ids: {}\n",
            program.build_id
        ),
        scripts: Vec::new(),
        files,
    })
}

/// Adds a unit, with the path of the program in packages.
fn unit(files: &mut Tree, root: &Path, name: &str) -> io::Result<()> {
    let text = fs::read_to_string(root.join("contrib/systemd").join(name))?;
    let text = text.replace(BY_HAND, PACKAGED);
    files.file(&format!("lib/systemd/system/{name}"), 0o644, text);
    Ok(())
}

fn examples(files: &mut Tree, folder: &Path, package: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("usr/share/doc/{package}/examples/{name}");
        files.file(&path, 0o644, fs::read(entry.path())?);
    }
    Ok(())
}

/// Adds the files that Debian wants in every package.
fn documents(files: &mut Tree, root: &Path, name: &str, release: &Release) -> io::Result<()> {
    let folder = format!("usr/share/doc/{name}");
    let copyright = fs::read(root.join("contrib/debian/copyright"))?;
    files.file(&format!("{folder}/copyright"), 0o644, copyright);
    let changes = fs::read(root.join("CHANGELOG.md"))?;
    files.file(&format!("{folder}/NEWS.md.gz"), 0o644, gzip(&changes)?);
    let Release { version, maintainer, time, .. } = release;
    let text = format!(
        "cairn ({version}) stable; urgency=medium\n\n  * See NEWS.md.\n\n -- {maintainer}  {}\n",
        rfc5322(*time)
    );
    files.file(&format!("{folder}/changelog.gz"), 0o644, gzip(text.as_bytes())?);
    Ok(())
}

/// Returns the scripts of a package in `contrib/debian`, `NAME.SCRIPT`.
fn scripts(root: &Path, name: &str) -> io::Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        let path = root.join(format!("contrib/debian/{name}.{script}"));
        if path.exists() {
            found.push((script, fs::read_to_string(path)?));
        }
    }
    Ok(found)
}
