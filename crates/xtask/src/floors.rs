//! The order of modules within a crate: groups of `mod` lines in its `lib.rs`, apart by an empty
//! line, are floors. A module uses modules of floors above its own only, so there is no circle.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Crates whose modules stand in floors.
const BUILT: [&str; 2] = ["posix", "fuse"];

/// What is found in all of them, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for name in BUILT {
        let sources = root.join("crates").join(name).join("src");
        let read = |file: &str| fs::read_to_string(sources.join(file));
        let floors = match read("lib.rs") {
            Ok(text) => floors(&text),
            Err(error) => {
                findings.push(format!("crates/{name}/src/lib.rs: {error}"));
                continue;
            }
        };
        for module in floors.keys() {
            match read(&format!("{module}.rs")) {
                Ok(text) => {
                    let found = check_module(&floors, module, &text);
                    findings.extend(found.iter().map(|found| format!("crates/{name}: {found}")));
                }
                Err(error) => findings.push(format!("crates/{name}/src/{module}.rs: {error}")),
            }
        }
    }
    findings.sort();
    findings
}

/// The floor of each module, counted from above.
pub fn floors(text: &str) -> HashMap<String, usize> {
    let mut floors = HashMap::new();
    let (mut floor, mut is_open) = (0, false);
    for line in text.lines() {
        let module = line.trim_start_matches("pub ").strip_prefix("mod ");
        if let Some(module) = module.and_then(|module| module.strip_suffix(';')) {
            floors.insert(module.to_owned(), floor);
            is_open = true;
        } else if is_open && line.trim().is_empty() {
            (floor, is_open) = (floor + 1, false);
        }
    }
    floors
}

/// Modules that this one uses and must not, also in braces: `use crate::{errno, flags};`.
pub fn check_module(floors: &HashMap<String, usize>, module: &str, text: &str) -> Vec<String> {
    let Some(own) = floors.get(module) else { return vec![format!("{module} stands nowhere")] };
    let mut findings = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => {
                rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
            }
        };
        let names = names.split(',').map(|name| name.trim().split(':').next().unwrap_or_default());
        for used in names {
            if floors.get(used).is_some_and(|floor| floor >= own) && used != module {
                findings.push(format!("{module} uses {used}, which does not stand above it"));
            }
        }
    }
    findings
}
