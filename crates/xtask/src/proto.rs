//! `cargo xtask proto`: Rust of the published interface, kept in the repository.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

const ROOT: &str = "crates/cluster/proto";
const SOURCE: &str = "cairn/admin/v1/admin.proto";
pub(crate) const MADE: &str = "crates/cluster/src/admin/proto.rs";
/// The tool's name for the file: the package of the interface.
const MADE_AS: &str = "cairn.admin.v1.rs";

/// Makes it anew, by the tool in `tools/proto`.
pub fn make(root: &Path) -> io::Result<()> {
    let out = root.join("target/proto");
    fs::create_dir_all(&out)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--target-dir", "target/proto", "--manifest-path"]);
    cargo.args(["tools/proto/Cargo.toml", "--", ROOT, SOURCE]).arg(&out).current_dir(root);
    if !cargo.status()?.success() {
        return Err(Error::other("tools/proto failed"));
    }
    let made = fs::read_to_string(out.join(MADE_AS))?;
    fs::write(root.join(MADE), format!("{}\n{made}", first_line(root)?))
}

/// Its faults, one a line; nothing if it was made of the interface as it is.
pub fn check(root: &Path) -> Vec<String> {
    let made = fs::read_to_string(root.join(MADE));
    match made.and_then(|made| Ok((made, first_line(root)?))) {
        Ok((made, first)) if made.lines().next() == Some(&first) => Vec::new(),
        Ok(_) => vec![format!("{MADE}: not made of {SOURCE} as it is: run cargo xtask proto")],
        Err(error) => vec![format!("{MADE} or {SOURCE}: {error}")],
    }
}

/// Names the source and its digest.
fn first_line(root: &Path) -> io::Result<String> {
    let digest = Sha256::digest(fs::read(root.join(ROOT).join(SOURCE))?);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("// Made of {SOURCE} by `cargo xtask proto`; its SHA-256: {hex}"))
}
