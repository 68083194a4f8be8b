//! A Debian package: an `ar` of `debian-binary`, `control.tar.gz` and `data.tar.gz` (deb(5)).

use std::fmt::Write as _;
use std::io;

use md5::{Digest, Md5};

use super::tree::{Tree, gzip};

/// A package to be written.
pub struct Deb {
    pub name: &'static str,
    /// One line that describes it.
    pub summary: &'static str,
    /// Lines of the long description.
    pub description: &'static str,
    pub section: &'static str,
    /// `Depends:` and similar fields, as lines of the control file.
    pub relations: String,
    /// Files of `control.tar` that dpkg runs: `postinst` and others.
    pub scripts: Vec<(&'static str, String)>,
    pub files: Tree,
}

/// Fields that all packages of one build share.
pub struct Release {
    pub version: String,
    /// `amd64`, `arm64`.
    pub architecture: &'static str,
    pub maintainer: String,
    /// Time of all files, in seconds since 1970.
    pub time: u64,
}

impl Deb {
    /// Returns the bytes of the package.
    pub fn bytes(&self, release: &Release) -> io::Result<Vec<u8>> {
        let data = gzip(&self.files.tar("./", release.time)?)?;
        let mut control = Tree::default();
        control.file("control", 0o644, self.control(release));
        control.file("md5sums", 0o644, self.sums());
        let conffiles: String = self.conffiles().map(|path| format!("/{path}\n")).collect();
        if !conffiles.is_empty() {
            control.file("conffiles", 0o644, conffiles);
        }
        for (name, text) in &self.scripts {
            control.file(name, 0o755, text.as_str());
        }
        let control = gzip(&control.tar("./", release.time)?)?;
        let members = [
            ("debian-binary", b"2.0\n".as_slice()),
            ("control.tar.gz", &control),
            ("data.tar.gz", &data),
        ];
        Ok(ar(&members, release.time))
    }

    /// Returns the files that an administrator edits: dpkg keeps changes to them.
    fn conffiles(&self) -> impl Iterator<Item = &str> {
        self.files.files().map(|(path, _)| path).filter(|path| path.starts_with("etc/"))
    }

    fn control(&self, release: &Release) -> String {
        let bytes: usize = self.files.files().map(|(_, bytes)| bytes.len()).sum();
        let Release { version, architecture, maintainer, .. } = release;
        let mut text = format!(
            "Package: {}\nSource: cairn\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {maintainer}\nInstalled-Size: {}\n{}Section: {}\nPriority: optional\n\
             Homepage: {}\nDescription: {}\n",
            self.name,
            bytes.div_ceil(1024),
            self.relations,
            self.section,
            env!("CARGO_PKG_REPOSITORY"),
            self.summary,
        );
        for line in self.description.lines() {
            let line = if line.is_empty() { "." } else { line };
            let _ = writeln!(text, " {line}");
        }
        text
    }

    fn sums(&self) -> String {
        let conffiles: Vec<&str> = self.conffiles().collect();
        let mut text = String::new();
        for (path, bytes) in self.files.files().filter(|(path, _)| !conffiles.contains(path)) {
            Md5::digest(bytes).iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            });
            let _ = writeln!(text, "  {path}");
        }
        text
    }
}

/// Makes an archive of `ar` in the form that dpkg reads: names of at most 16 bytes, even offsets.
fn ar(members: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        let head = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644");
        assert_eq!(head.len(), 60, "{name}: a field of ar is too long");
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(content);
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}
