//! Dependencies of Cairn: their licences and sources, as far as cargo knows them. `deny.toml` has
//! the list of licences, and more, for cargo-deny.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const WORKSPACES: [&str; 2] = ["Cargo.toml", "tools/proto/Cargo.toml"];
/// Suffix of the only source that dependencies may have.
const REGISTRY: &str = "/rust-lang/crates.io-index";

/// Returns the faults of the dependencies of both workspaces, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let allowed = match allowed(root) {
        Ok(allowed) => allowed,
        Err(error) => return vec![format!("deny.toml: {error}")],
    };
    let mut findings = Vec::new();
    for workspace in WORKSPACES {
        match metadata(root, workspace) {
            Ok(metadata) => findings.extend(check_metadata(workspace, &metadata, &allowed)),
            Err(error) => findings.push(format!("{workspace}: cargo metadata: {error}")),
        }
    }
    findings
}

fn allowed(root: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(root.join("deny.toml")).map_err(|error| error.to_string())?;
    let file = text.parse::<toml::Table>().map_err(|error| error.to_string())?;
    let allowed = file.get("licenses").and_then(|licenses| licenses.get("allow"));
    let allowed = allowed.and_then(toml::Value::as_array).ok_or("no list of licences")?;
    Ok(allowed.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

fn metadata(root: &Path, manifest: &str) -> Result<String, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    cargo.args(["--manifest-path", manifest]).current_dir(root);
    let done = cargo.output().map_err(|error| error.to_string())?;
    let text = if done.status.success() { done.stdout } else { done.stderr };
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    if done.status.success() { Ok(text) } else { Err(text) }
}

/// Checks the output of `cargo metadata` for one workspace.
pub fn check_metadata(workspace: &str, metadata: &str, allowed: &[String]) -> Vec<String> {
    let metadata = serde_json::from_str::<Value>(metadata).unwrap_or_default();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if packages.is_empty() {
        return vec![format!("{workspace}: cargo metadata names no package")];
    }
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    packages.iter().flat_map(|package| check_package(workspace, package, &allowed)).collect()
}

fn check_package(workspace: &str, package: &Value, allowed: &[&str]) -> Vec<String> {
    let text = |field: &str| package[field].as_str().unwrap_or("?");
    let name = format!("{workspace}: {} {}", text("name"), text("version"));
    let mut findings = Vec::new();
    match package["license"].as_str() {
        Some(license) if is_allowed(license, allowed) => {}
        Some(license) => findings.push(format!("{name}: `{license}` is not allowed")),
        None => findings.push(format!("{name}: says no licence")),
    }
    match package["source"].as_str() {
        Some(source) if source.starts_with("registry+") && source.ends_with(REGISTRY) => {}
        Some(source) => findings.push(format!("{name}: comes from {source}")),
        // A path in this repository: only for these cargo gives no source.
        None => {}
    }
    findings
}

/// Returns true if the licences `allowed` satisfy an SPDX expression; of a choice, one is enough.
pub fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // Old manifests write a choice as `MIT/Apache-2.0`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let is_satisfied = either(&mut words, allowed);
    is_satisfied == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Reads `all OR all ...`; nothing if it is no expression.
fn either(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let mut is_satisfied = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        is_satisfied |= all(words, allowed)?;
    }
    Some(is_satisfied)
}

/// Reads `one AND one ...`.
fn all(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    let mut is_satisfied = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        is_satisfied &= one(words, allowed)?;
    }
    Some(is_satisfied)
}

/// Reads `( either )`, or the name of a licence, perhaps `WITH` an exception, which makes it
/// another licence.
fn one(words: &mut Words<'_>, allowed: &[&str]) -> Option<bool> {
    if words.next_if_eq(&"(").is_some() {
        let is_satisfied = either(words, allowed)?;
        return words.next_if_eq(&")").map(|_| is_satisfied);
    }
    let mut name = words.next_if(|word| !["AND", "OR", "WITH", ")"].contains(word))?.to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next()?);
    }
    Some(allowed.contains(&name.as_str()))
}
