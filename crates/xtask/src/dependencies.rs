//! Dependencies that nothing uses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::rust_files;
use crate::tokens::all_tokens;

/// Packages whose library has a different name.
const LIBRARIES: [(&str, &str); 2] = [("md-5", "md5"), ("rustls-webpki", "webpki")];

/// Returns the dependencies in the manifests that no crate uses, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    let mut crates: Vec<PathBuf> = fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|it| it.path())
        .collect();
    crates.sort();
    for folder in &crates {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let manifest = table(&folder.join("Cargo.toml"));
        for (kind, folders) in [
            ("dependencies", &["src"][..]),
            ("dev-dependencies", &["src", "tests", "benches", "examples"]),
        ] {
            let packages = packages(&manifest, kind);
            let texts: Vec<String> = folders.iter().map(|part| text(&folder.join(part))).collect();
            let unused = unused(&packages, &texts.concat());
            findings.extend(unused.iter().map(|it| format!("crates/{name} does not use {it}")));
            named.extend(packages);
        }
    }
    let workspace = table(&root.join("Cargo.toml"));
    let ours = workspace.get("workspace").and_then(toml::Value::as_table).cloned();
    let all = packages(&ours.unwrap_or_default(), "dependencies");
    let nobody = all.iter().filter(|it| !named.contains(*it));
    findings.extend(nobody.map(|it| format!("Cargo.toml: no crate depends on {it}")));
    findings
}

fn table(path: &Path) -> toml::Table {
    fs::read_to_string(path).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn packages(manifest: &toml::Table, kind: &str) -> Vec<String> {
    let packages = manifest.get(kind).and_then(toml::Value::as_table);
    packages.into_iter().flat_map(toml::Table::keys).cloned().collect()
}

fn text(folder: &Path) -> String {
    let texts = rust_files(folder).into_iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.collect::<Vec<String>>().join("\n")
}

/// Returns the `packages` for which no path in `text` begins with their library.
pub fn unused(packages: &[String], text: &str) -> Vec<String> {
    let tokens = all_tokens(text);
    let starts: BTreeSet<&str> = tokens
        .windows(2)
        .filter(|pair| pair[1] == "::" || pair[1] == ";")
        .map(|pair| pair[0].as_str())
        .collect();
    let is_used = |package: &str| {
        let known = LIBRARIES.iter().find(|(name, _)| *name == package);
        let library = known.map_or(package.replace('-', "_"), |(_, library)| (*library).to_owned());
        starts.contains(library.as_str())
    };
    packages.iter().filter(|package| !is_used(package)).cloned().collect()
}
