//! Crates of which the program consists: a bill of materials (CycloneDX 1.5), and the texts of
//! their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::program::said;

/// Prefixes of the names of files with the text of a licence, in capitals.
const TEXTS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// A crate of the program.
pub struct Part {
    pub name: String,
    pub version: String,
    /// SPDX expression of its licence.
    pub licence: String,
    /// SHA-256 of the package, if it comes from a registry.
    pub checksum: Option<String>,
    pub folder: PathBuf,
}

/// Returns the crates that are linked into the program, by name and version.
pub fn list(root: &Path, target: &str) -> io::Result<Vec<Part>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let metadata = said(cargo.current_dir(root))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let lock = fs::read_to_string(root.join("Cargo.lock"))?;
    let checksums = checksums(&lock).ok_or_else(|| Error::other("Cargo.lock: not understood"))?;
    Ok(linked(&metadata, &checksums))
}

/// Returns the checksums by name and version.
fn checksums(lock: &str) -> Option<BTreeMap<(String, String), String>> {
    let lock = lock.parse::<toml::Table>().ok()?;
    let packages = lock.get("package")?.as_array()?;
    let text = |package: &toml::Value, field: &str| Some(package.get(field)?.as_str()?.to_owned());
    let all = packages.iter().filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Some(all.collect())
}

/// Returns the crates that the package `cairn` reaches by normal dependencies: crates that only
/// builds or tests need are not in the program. Macros are listed too, although they only make
/// code.
pub fn linked(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Vec<Part> {
    let empty = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&empty);
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap_or(&empty);
    let program = packages.iter().find(|package| package["name"] == "cairn");
    let mut waiting: Vec<&str> = program.and_then(|it| it["id"].as_str()).into_iter().collect();
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let dependencies = node.and_then(|node| node["deps"].as_array()).unwrap_or(&empty);
        for dependency in dependencies {
            let kinds = dependency["dep_kinds"].as_array().unwrap_or(&empty);
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str());
            }
        }
    }
    let is_in = |package: &&Value| package["id"].as_str().is_some_and(|id| reached.contains(id));
    let mut parts: Vec<Part> =
        packages.iter().filter(is_in).map(|package| part(package, checksums)).collect();
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    parts
}

fn part(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Part {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
    let folder = PathBuf::from(text("manifest_path")).parent().map(Path::to_owned);
    let licence = text("license").replace('/', " OR ");
    Part { name, version, licence, checksum, folder: folder.unwrap_or_default() }
}

/// Returns the bill of materials. It has no time and no serial number, so that it is reproducible.
pub fn bill(parts: &[Part], version: &str) -> io::Result<String> {
    let components: Vec<Value> = parts
        .iter()
        .map(|part| {
            let reference = format!("pkg:cargo/{}@{}", part.name, part.version);
            let mut component = json!({
                "type": "library",
                "bom-ref": reference,
                "name": part.name,
                "version": part.version,
                "purl": reference,
                "licenses": [{"expression": part.licence}],
            });
            if let Some(checksum) = &part.checksum {
                component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
            }
            component
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "cairn", "version": version}},
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// Returns the licences of all crates, each text once, after the names of its crates.
pub fn licences(parts: &[Part]) -> io::Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut text = "The program consists of these crates:\n\n".to_owned();
    for part in parts {
        let name = format!("{} {}", part.name, part.version);
        let _ = writeln!(text, "{name}: {}", part.licence);
        for found in texts_in(&part.folder)? {
            texts.entry(found).or_default().push(name.clone());
        }
    }
    for (licence, names) in texts {
        let rule = "-".repeat(72);
        let _ = write!(text, "\n{rule}\n{}:\n\n{}\n", names.join(", "), licence.trim_end());
    }
    Ok(text)
}

fn texts_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if TEXTS.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            found.push(String::from_utf8_lossy(&fs::read(entry.path())?).into_owned());
        }
    }
    found.sort();
    Ok(found)
}
