//! `cargo xtask proto`: Rust of published interfaces, kept in the repository.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

/// An interface and what is made of it.
struct Interface {
    root: &'static str,
    source: &'static str,
    made: &'static str,
    /// The tool's name for the file: the package of the interface.
    made_as: &'static str,
    /// Words for the tool.
    options: &'static [&'static str],
}

const INTERFACES: [Interface; 2] = [
    Interface {
        root: "crates/cluster/proto",
        source: "cairn/admin/v1/admin.proto",
        made: "crates/cluster/src/admin/proto.rs",
        made_as: "cairn.admin.v1.rs",
        options: &[],
    },
    // The interface is made by others: a driver has only some of its methods.
    Interface {
        root: "crates/csi/proto",
        source: "csi.proto",
        made: "crates/csi/src/proto.rs",
        made_as: "csi.v1.rs",
        options: &["absent"],
    },
];

/// Returns whether a file is generated from an interface.
pub(crate) fn is_made(name: &str) -> bool {
    INTERFACES.iter().any(|interface| interface.made == name)
}

/// Makes them anew, by the tool in `tools/proto`.
pub fn make(root: &Path) -> io::Result<()> {
    let out = root.join("target/proto");
    fs::create_dir_all(&out)?;
    for interface in &INTERFACES {
        let Interface { root: from, source, made, made_as, options } = interface;
        let mut cargo = Command::new("cargo");
        cargo.args(["run", "--quiet", "--target-dir", "target/proto", "--manifest-path"]);
        cargo.args(["tools/proto/Cargo.toml", "--", from, source]).arg(&out).args(*options);
        if !cargo.current_dir(root).status()?.success() {
            return Err(Error::other("tools/proto failed"));
        }
        let text = fs::read_to_string(out.join(made_as))?;
        fs::write(root.join(made), format!("{}\n{text}", first_line(root, interface)?))?;
    }
    Ok(())
}

/// Their faults, one a line; nothing if all were made of the interfaces as they are.
pub fn check(root: &Path) -> Vec<String> {
    INTERFACES.iter().filter_map(|interface| fault(root, interface)).collect()
}

fn fault(root: &Path, interface: &Interface) -> Option<String> {
    let Interface { source, made, .. } = interface;
    let text = fs::read_to_string(root.join(made));
    match text.and_then(|text| Ok((text, first_line(root, interface)?))) {
        Ok((text, first)) if text.lines().next() == Some(&first) => None,
        Ok(_) => Some(format!("{made}: not made of {source} as it is: run cargo xtask proto")),
        Err(error) => Some(format!("{made} or {source}: {error}")),
    }
}

/// Names the source and its digest.
fn first_line(root: &Path, interface: &Interface) -> io::Result<String> {
    let source = interface.source;
    let digest = Sha256::digest(fs::read(root.join(interface.root).join(source))?);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("// Made of {source} by `cargo xtask proto`; its SHA-256: {hex}"))
}
