//! Source files below a folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns all Rust files below `directory`, in order.
pub fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // Folders that cargo builds have this file.
        if path.is_dir() && !path.join("CACHEDIR.TAG").exists() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
