//! Checks that no compiler makes.

use std::fs;
use std::path::Path;

use crate::files::rust_files;

/// Our crates that each crate may depend on, outside of tests.
const DIRECTIONS: [(&str, &[&str]); 21] = [
    ("base", &[]),
    ("tls", &[]),
    ("auth", &["base"]),
    ("audit", &["base", "auth"]),
    ("blocks", &["base"]),
    ("meta", &["base", "auth", "tls", "audit"]),
    ("fs", &["base", "auth", "meta", "blocks"]),
    ("cluster", &["base", "auth", "meta", "blocks", "tls", "audit"]),
    ("logs", &["base", "auth", "fs"]),
    ("roles", &["base", "auth", "meta", "blocks", "fs", "cluster", "logs", "audit"]),
    ("doors", &["base", "auth", "fs", "logs", "audit"]),
    ("console", &["base", "auth", "audit", "fs", "doors", "doctor", "logs"]),
    ("posix", &["base", "auth", "fs"]),
    ("fuse", &["base", "auth", "fs", "posix"]),
    ("nfs", &["base", "auth", "fs", "posix"]),
    ("bench", &["tls"]),
    ("doctor", &[]),
    ("csi", &[]),
    (
        "cairn",
        &[
            "base", "auth", "meta", "blocks", "fs", "fuse", "nfs", "cluster", "roles", "doors",
            "logs", "bench", "doctor", "tls", "audit", "console", "csi",
        ],
    ),
    ("sim", &["base"]),
    ("xtask", &[]),
];

/// Packages that a crate must never depend on, and the reasons.
const ABSENCES: [(&str, &[&str], &str); 13] = [
    ("base", &["tokio", "hyper"], "base has no async runtime"),
    ("auth", &["tokio", "hyper", "rustix"], "auth does no input or output"),
    ("meta", &["hyper", "s3s", "http"], "meta knows no protocol"),
    ("blocks", &["hyper", "s3s", "http"], "blocks know no protocol"),
    ("fs", &["hyper", "s3s", "http", "quick-xml", "fuser"], "fs knows no protocol"),
    ("cluster", &["s3s", "quick-xml", "fuser"], "cluster knows no door"),
    ("roles", &["rustix", "rustls", "hyper", "http", "fuser", "clap"], "roles know no machine"),
    ("doors", &["redb", "cairn-meta", "cairn-blocks"], "doors build no keys and see no blocks"),
    ("logs", &["hyper", "http", "cairn-meta", "cairn-blocks"], "logs know no door"),
    ("console", &["s3s", "cairn-meta", "cairn-blocks"], "the console is pages over fs"),
    ("posix", &["fuser", "rustix", "hyper", "http"], "posix knows no kernel and no protocol"),
    ("nfs", &["hyper", "http", "fuser", "cairn-meta", "cairn-blocks"], "nfs builds no keys"),
    ("fuse", &["hyper", "http", "cairn-meta", "cairn-blocks"], "a mount knows no network"),
];

const FUNCTION_LINES: usize = 70;
const LINE_CHARS: usize = 100;

/// Returns all faults below `root`, one line each; none if all is tidy.
pub fn check(root: &Path) -> Vec<String> {
    let mut findings = check_directions(root);
    findings.extend(crate::pictures::check(root));
    findings.extend(crate::proto::check(root));
    findings.extend(crate::supply::check(root));
    findings.extend(crate::floors::check(root));
    findings.extend(crate::glossary::check(root));
    findings.extend(crate::language::check(root));
    findings.extend(crate::dependencies::check(root));
    for file in rust_files(&root.join("crates")) {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if crate::proto::is_made(&name) {
            continue;
        }
        match fs::read_to_string(&file) {
            Ok(text) => findings.extend(check_text(&name, &text)),
            Err(error) => findings.push(format!("{name}: {error}")),
        }
    }
    findings
}

fn check_directions(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    for entry in crates {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        findings.extend(check_manifest(&name, &manifest));
    }
    findings
}

/// Checks one manifest: `name` is the folder under `crates/`.
pub fn check_manifest(name: &str, manifest: &str) -> Vec<String> {
    let Ok(manifest) = manifest.parse::<toml::Table>() else {
        return vec![format!("crates/{name}/Cargo.toml: not a manifest")];
    };
    let Some((_, allowed)) = DIRECTIONS.iter().find(|(known, _)| *known == name) else {
        return vec![format!("crates/{name}: say in tidy.rs what it may depend on")];
    };
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let mut findings = Vec::new();
    for dependency in dependencies.into_iter().flat_map(toml::Table::keys) {
        if let Some(ours) = dependency.strip_prefix("cairn-")
            && !allowed.contains(&ours)
        {
            findings.push(format!("crates/{name} must not depend on {ours}"));
        }
        for (place, absent, why) in ABSENCES {
            if place == name && absent.contains(&dependency.as_str()) {
                findings.push(format!("crates/{name} depends on {dependency}, but {why}"));
            }
        }
    }
    findings
}

/// Checks the lengths of functions and lines of one file.
pub fn check_text(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        // rustfmt breaks code; longer lines are texts that cannot be broken, and comments.
        if line.chars().count() > LINE_CHARS && !line.contains('"') {
            findings.push(format!("{name}:{number}: more than {LINE_CHARS} characters"));
        }
        let indent = line.len() - line.trim_start().len();
        if open.is_none()
            && let Some(function) = function_name(line)
            && !line.trim_end().ends_with([';', '}'])
        {
            open = Some((number, indent, function));
        }
        if let Some((start, outer, function)) = &open
            && indent == *outer
            && (line.trim() == "}" || line.trim_end().ends_with(';'))
        {
            let lines = number - start + 1;
            if lines > FUNCTION_LINES {
                findings.push(format!("{name}:{start}: `{function}` has {lines} lines"));
            }
            open = None;
        }
    }
    findings
}

/// Returns the name of a function that begins in this line, in the form of rustfmt.
fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || ["async", "const", "unsafe", "in"].contains(word)
    });
    if words.next() != Some("fn") {
        return None;
    }
    let name: String =
        words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}
