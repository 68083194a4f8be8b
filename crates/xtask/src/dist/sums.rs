//! Sums of what is made, and the builder's signature over them.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

use super::program::run;

/// File with a line `SHA-256  NAME` for each file that is made.
pub const SUMS: &str = "SHA256SUMS";
/// Purpose that a signature names, so that it counts for nothing else.
pub const NAMESPACE: &str = "cairn-release";
const MADE: [&str; 3] = [".deb", ".oci.tar", ".cdx.json"];

/// Writes the sums of all packages, images and bills in a folder, in the order of their names.
///
/// # Errors
/// Those of the disk.
pub fn write(out: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(out)? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        if name == "licences" || MADE.iter().any(|end| name.ends_with(end)) {
            names.push(name);
        }
    }
    names.sort();
    let mut text = String::new();
    for name in names {
        let sum = Sha256::digest(fs::read(out.join(&name))?);
        for byte in sum {
            let _ = write!(text, "{byte:02x}");
        }
        let _ = writeln!(text, "  {name}");
    }
    fs::write(out.join(SUMS), text)
}

/// Signs the sums with a key of OpenSSH: `SHA256SUMS.sig` is the signature.
///
/// # Errors
/// Those of `ssh-keygen`.
pub fn sign(out: &Path, key: &Path) -> io::Result<()> {
    let (sums, signature) = (out.join(SUMS), out.join(format!("{SUMS}.sig")));
    // ssh-keygen asks before it overwrites.
    match fs::remove_file(&signature) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut keygen = Command::new("ssh-keygen");
    run(keygen.args(["-Y", "sign", "-n", NAMESPACE, "-f"]).arg(key).arg(sums)).map_err(|error| {
        Error::new(
            error.kind(),
            format!("{}: {error}: not signed (needs openssh-client)", key.display()),
        )
    })
}
