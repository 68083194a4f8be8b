//! Order of the modules within a crate: groups of `mod` lines in its `lib.rs` or `main.rs`,
//! separated by an empty line, are floors. A module uses only modules of floors above its own, and
//! no files use each other in a circle, wherever they are.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::arrows::{Name, Sources, arrows, circles, read};

/// Returns the findings in all crates, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for entry in fs::read_dir(root.join("crates")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match read(&entry.path().join("src")) {
            Ok(sources) => {
                let floors = floors(sources.get(&Name::new()).map_or("", |text| text));
                let found = check_sources(&floors, &sources);
                findings.extend(found.iter().map(|found| format!("crates/{name}: {found}")));
            }
            Err(error) => findings.push(format!("crates/{name}/src: {error}")),
        }
    }
    findings.sort();
    findings
}

/// Returns the floor of each module, counted from above.
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

fn shown(module: &Name) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("/") }
}

/// Checks like [`check_sources`], knowing the text of one module only.
pub fn check_module(floors: &HashMap<String, usize>, module: &str, text: &str) -> Vec<String> {
    let mut sources: Sources =
        floors.keys().map(|name| (vec![name.clone()], String::new())).collect();
    sources.insert(vec![module.to_owned()], text.to_owned());
    check_sources(floors, &sources)
}

/// Returns modules that use others not above them, and circles of files.
pub fn check_sources(floors: &HashMap<String, usize>, sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    let arrows = arrows(sources);
    for (module, used) in &arrows {
        let Some(room) = module.first() else { continue };
        let Some(own) = floors.get(room) else {
            findings.push(format!("{} stands nowhere", module.join("/")));
            continue;
        };
        for used in used.iter().filter(|used| used.first() != Some(room)) {
            if used.first().and_then(|used| floors.get(used)).is_some_and(|floor| floor >= own) {
                let (module, used) = (module.join("/"), used.join("/"));
                findings.push(format!("{module} uses {used}, which does not stand above it"));
            }
        }
    }
    for circle in circles(&arrows) {
        let names: Vec<String> = circle.iter().map(shown).collect();
        findings.push(format!("a circle: {}", names.join(", ")));
    }
    findings
}
