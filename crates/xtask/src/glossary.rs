//! `docs/glossary.md` and the names of types: one word for one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::files::rust_files;
use crate::tokens::{tokens, words};

const GLOSSARY: &str = "docs/glossary.md";
/// The heading of the section about names that several modules use.
const SEVERAL: &str = "## Names that the code uses for several things";
/// Crates with separate words: measurements, and the developers' tools.
const APART: [&str; 4] = ["bench", "doctor", "sim", "xtask"];
/// Names that say nothing without a further word.
const BARE: [&str; 6] = ["Args", "State", "Shared", "Shown", "Method", "Slots"];
/// Words that documents use in a sense of Cairn's own. A new one is added here and defined there.
const SPECIAL: [&str; 36] = [
    "attach",
    "batch",
    "beat",
    "body",
    "caller",
    "checkpoint",
    "chunk",
    "delegated",
    "dirty",
    "door",
    "drain",
    "executed",
    "extent",
    "fence",
    "finding",
    "freed",
    "grant",
    "group",
    "kept",
    "lapse",
    "layout",
    "lease",
    "link",
    "master",
    "orphan",
    "party",
    "piece",
    "posted",
    "recall",
    "retained",
    "serial",
    "settled",
    "slot",
    "stage",
    "tally",
    "tombstone",
];

/// Names of types, each with the files that define such a type.
pub type Types = BTreeMap<String, BTreeSet<String>>;

/// Returns the faults of the glossary and of the names of types below `root`, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let Ok(glossary) = fs::read_to_string(root.join(GLOSSARY)) else {
        return vec![format!("{GLOSSARY}: cannot be read")];
    };
    let (mut types, mut texts) = (Types::new(), String::new());
    for file in rust_files(&root.join("crates")) {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if crate::proto::is_made(&name) || !name.contains("/src/") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        for defined in defined(&text) {
            types.entry(defined).or_default().insert(name.clone());
        }
        texts.push_str(&text);
    }
    for document in documents(&root.join("docs")).into_iter().filter(|it| *it != GLOSSARY) {
        texts.push_str(&fs::read_to_string(root.join(document)).unwrap_or_default());
    }
    let mut findings = check_glossary(&glossary, &texts, &SPECIAL);
    findings.extend(check_types(&glossary, &types));
    findings
}

/// Returns the paths of the documents in a folder, from the root.
fn documents(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()));
    names.filter(|name| name.ends_with(".md")).collect()
}

/// Returns the types that a source file defines outside its tests.
pub fn defined(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let pairs = tokens.windows(2).filter(|pair| {
        ["struct", "enum", "trait"].contains(&pair[0].as_str())
            && pair[1].starts_with(char::is_uppercase)
    });
    pairs.map(|pair| pair[1].clone()).collect()
}

/// Returns the words that the glossary defines.
fn terms(glossary: &str) -> BTreeSet<String> {
    let defined = glossary.split(SEVERAL).next().unwrap_or_default();
    let heads = defined.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    heads.flat_map(|(head, _)| head.split(',')).map(|term| term.trim().to_owned()).collect()
}

/// Returns words that lack a definition, and definitions of words that nothing uses.
pub fn check_glossary(glossary: &str, texts: &str, special: &[&str]) -> Vec<String> {
    let (terms, texts) = (terms(glossary), texts.to_lowercase());
    let undefined = special.iter().filter(|word| !terms.contains(**word));
    let undefined = undefined.map(|word| format!("{GLOSSARY} does not define `{word}`"));
    let unused = terms.iter().filter(|term| !texts.contains(term.to_lowercase().as_str()));
    let unused = unused.map(|term| format!("{GLOSSARY} defines `{term}`, which nothing uses"));
    undefined.chain(unused).collect()
}

/// Returns types with a name that says nothing, and types that the glossary lists and that do not
/// exist. Also returns types that have the name of a term and are several things: the glossary must
/// list those.
pub fn check_types(glossary: &str, types: &Types) -> Vec<String> {
    let terms = terms(glossary);
    let several = glossary.split(SEVERAL).nth(1).unwrap_or_default();
    let listed: BTreeSet<String> = words(several).into_iter().map(|word| word.text).collect();
    let mut findings = Vec::new();
    for (name, files) in types {
        let ours = files.iter().filter(|file| !APART.iter().any(|it| is_of(file, it)));
        let ours: Vec<&str> = ours.map(String::as_str).collect();
        if BARE.contains(&name.as_str()) {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            findings.push(format!("{}: `{name}` of what?", files.join(", ")));
        }
        if ours.len() > 1 && terms.contains(&name.to_lowercase()) && !listed.contains(name) {
            let files = ours.join(", ");
            findings.push(format!("`{name}` is several things, and {GLOSSARY} lists one: {files}"));
        }
    }
    let spans = several.split('`').skip(1).step_by(2);
    let names = spans.filter_map(|span| span.rsplit("::").next());
    for name in names.filter(|name| name.starts_with(char::is_uppercase)) {
        if name.chars().all(char::is_alphanumeric) && !types.contains_key(name) {
            findings.push(format!("{GLOSSARY} lists `{name}`, and there is no such type"));
        }
    }
    findings
}

fn is_of(file: &str, name: &str) -> bool {
    file.strip_prefix("crates/").is_some_and(|file| file.starts_with(&format!("{name}/")))
}
