//! Pictures in documents: each of them exists, each is shown, and all of them are small. `cargo
//! xtask screenshots --docs` makes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Directory of the pictures, from the root.
pub const PLACE: &str = "docs/images";
/// Size of all pictures, bytes, at most.
pub const BYTES_MAX: u64 = 600 << 10;

/// Returns the faults of the pictures below `root`, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let (mut findings, mut used) = (Vec::new(), BTreeSet::new());
    for document in documents(root) {
        let text = fs::read_to_string(root.join(&document)).unwrap_or_default();
        let folder = document.parent().unwrap_or(Path::new(""));
        for picture in shown(&text).into_iter().filter(|place| !place.contains("://")) {
            let place = folder.join(picture);
            if !root.join(&place).is_file() {
                let document = document.display();
                findings.push(format!("{document}: there is no picture {picture}"));
            }
            used.insert(place);
        }
    }
    let mut bytes = 0;
    for picture in files(root, PLACE) {
        bytes += fs::metadata(root.join(&picture)).map_or(0, |found| found.len());
        if !used.contains(&picture) {
            findings.push(format!("{}: no document shows it", picture.display()));
        }
    }
    if bytes > BYTES_MAX {
        findings.push(format!("{PLACE}: {bytes} bytes of pictures; at most {BYTES_MAX}"));
    }
    findings
}

/// Returns the paths of the pictures in a document, as the document has them.
pub fn shown(text: &str) -> Vec<&str> {
    let pictures = text.split("![").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once("](")?;
        Some(rest.split([')', ' ']).next().unwrap_or(rest))
    });
    pictures.collect()
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md"), PathBuf::from("ARCHITECTURE.md")];
    let is_document = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "md");
    found.extend(files(root, "docs").into_iter().filter(is_document));
    found
}

fn files(root: &Path, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| Path::new(folder).join(entry.file_name())).collect()
}
