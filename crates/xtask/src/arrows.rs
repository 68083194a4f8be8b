//! Uses of modules by other modules of a crate, by the paths in its sources.
//!
//! A path leads to the module that defines what it names, through each `pub use` on the way. A name
//! that the head of a folder re-exports is no use of its own. Modules of tests are left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::{fs, io};

use crate::tokens::{is_name, tokens};

/// A module, by its path from the root of its crate: `["ops", "rename"]`.
pub type Name = Vec<String>;

/// Modules that each module uses.
pub type Arrows = BTreeMap<Name, BTreeSet<Name>>;

/// Text of each module.
pub type Sources = BTreeMap<Name, String>;

/// Reads the modules below a folder.
pub fn read(folder: &Path) -> io::Result<Sources> {
    let mut sources = Sources::new();
    read_into(folder, &[], &mut sources)?;
    Ok(sources)
}

fn read_into(folder: &Path, above: &[String], sources: &mut Sources) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = match stem.as_str() {
            "lib" | "main" | "mod" => above.to_vec(),
            _ => [above, std::slice::from_ref(&stem)].concat(),
        };
        if path.is_dir() {
            read_into(&path, &name, sources)?;
        } else if path.extension().is_some_and(|it| it == "rs") && stem != "tests" {
            // A crate may have both a library and a program.
            sources.entry(name).or_default().push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Facts about one module.
#[derive(Default)]
struct Module {
    defined: BTreeSet<String>,
    /// Names that stand for paths.
    imported: HashMap<String, Name>,
    /// Modules of which all names are imported.
    globs: Vec<Name>,
    /// Paths that occur in it.
    used: Vec<Name>,
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

/// Returns the modules that each of these modules uses. The root of the crate is the empty name.
pub fn arrows(sources: &Sources) -> Arrows {
    let parsed = sources.iter().map(|(name, text)| (name.clone(), parse(name, text, sources)));
    let modules: BTreeMap<Name, Module> = parsed.collect();
    let arrow = |(name, module): (&Name, &Module)| {
        let ends = module.used.iter().map(|path| resolve(path, &modules, 0));
        (name.clone(), ends.filter(|end| end != name).collect())
    };
    modules.iter().map(arrow).collect()
}

/// Returns the module that defines what a path names.
fn resolve(path: &[String], modules: &BTreeMap<Name, Module>, depth: usize) -> Name {
    let is_module = |length: &usize| modules.contains_key(&path[..*length]);
    let length = (0..=path.len()).rev().find(is_module).unwrap_or_default();
    let name = path[..length].to_vec();
    let (Some(item), Some(module)) = (path.get(length), modules.get(&name)) else { return name };
    // A circle of imports does not compile.
    if module.defined.contains(item) || depth > modules.len() {
        return name;
    }
    if let Some(target) = module.imported.get(item) {
        let target = [target.as_slice(), &path[length + 1..]].concat();
        return resolve(&target, modules, depth + 1);
    }
    let defines =
        |end: &Name| modules.get(end.as_slice()).is_some_and(|end| end.defined.contains(item));
    let through =
        |glob: &Name| resolve(&[glob.as_slice(), &path[length..]].concat(), modules, depth + 1);
    module.globs.iter().map(through).find(defines).unwrap_or(name)
}

fn parse(name: &[String], text: &str, sources: &Sources) -> Module {
    let tokens = tokens(text);
    let mut module = Module::default();
    let (mut at, mut bodies) = (0, Vec::new());
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        if token == "use" && next.is_some_and(|next| is_name(next) || next == "{") {
            let is_handed_on = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            let mut tree = Vec::new();
            at = use_tree(&tokens, at + 1, &[], &mut tree);
            for (path, alias) in tree {
                import(&mut module, name, sources, path, alias, is_handed_on);
            }
            continue;
        }
        if ITEMS.contains(&token.as_str())
            && let Some(next) = next.filter(|next| is_name(next))
        {
            module.defined.insert(next.clone());
        }
        let mut path = Vec::new();
        if is_name(token) {
            at = path_from(&tokens, at, &mut path);
            bodies.push(path);
        } else {
            at += 1;
        }
    }
    // A type that the module re-exports and uses itself is named without a path.
    let is_type = |path: &Name| path[0].starts_with(char::is_uppercase);
    for path in bodies.into_iter().filter(|path| path.len() > 1 || is_type(path)) {
        let absolute = match module.imported.get(&path[0]) {
            Some(target) => Some([target.as_slice(), &path[1..]].concat()),
            None if path.len() == 1 => None,
            None => absolute(name, &path, sources),
        };
        module.used.extend(absolute);
    }
    module
}

/// Reads `a::b`; returns its end.
fn path_from(tokens: &[String], mut at: usize, path: &mut Name) -> usize {
    while let Some(token) = tokens.get(at).filter(|token| is_name(token)) {
        path.push(token.clone());
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    at
}

/// Reads `a::{b, c as d}` as paths with their other names; returns its end.
fn use_tree(
    tokens: &[String],
    at: usize,
    above: &[String],
    tree: &mut Vec<(Name, Option<String>)>,
) -> usize {
    let mut path = above.to_vec();
    let mut at = path_from(tokens, at, &mut path);
    match tokens.get(at).map(String::as_str) {
        Some("{") => {
            at += 1;
            while tokens.get(at).is_some_and(|token| token != "}") {
                let before = at;
                at = use_tree(tokens, at, &path, tree);
                if at == before || tokens.get(at).is_some_and(|token| token == ",") {
                    at += 1;
                }
            }
            return at + 1;
        }
        Some("*") => {
            path.push("*".to_owned());
            at += 1;
        }
        _ => {}
    }
    let mut alias = None;
    if tokens.get(at).is_some_and(|token| token == "as") {
        alias = tokens.get(at + 1).cloned();
        at += 2;
    }
    tree.push((path, alias));
    at
}

fn import(
    module: &mut Module,
    name: &[String],
    sources: &Sources,
    mut path: Name,
    alias: Option<String>,
    is_handed_on: bool,
) {
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let Some(mut target) = absolute(name, &path, sources) else { return };
    if target.last().is_some_and(|last| last == "*") {
        target.pop();
        module.globs.push(target.clone());
    } else if let Some(last) = alias.or(path.pop()) {
        module.imported.insert(last, target.clone());
    }
    if !is_handed_on {
        module.used.push(target);
    }
}

/// Returns a path from the root of the crate; `None` if it leads out of it.
fn absolute(name: &[String], path: &[String], sources: &Sources) -> Option<Name> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([name, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let above = &name[..name.len().saturating_sub(ups)];
            Some([above, &path[ups..]].concat())
        }
        _ => {
            let child = [name, std::slice::from_ref(first)].concat();
            sources.contains_key(&child).then(|| [name, path].concat())
        }
    }
}

/// Returns the modules that use each other, directly or not: each circle once.
pub fn circles(arrows: &Arrows) -> Vec<Vec<Name>> {
    let mut circles: Vec<Vec<Name>> = Vec::new();
    let reached: BTreeMap<&Name, BTreeSet<&Name>> =
        arrows.keys().map(|name| (name, reach(name, arrows))).collect();
    let reaches = |from: &Name, to: &Name| reached.get(from).is_some_and(|it| it.contains(to));
    for name in arrows.keys().filter(|name| reaches(name, name)) {
        if !circles.iter().any(|circle| circle.contains(name)) {
            let circle = arrows.keys().filter(|one| reaches(name, one) && reaches(one, name));
            circles.push(circle.cloned().collect());
        }
    }
    circles
}

fn reach<'a>(name: &'a Name, arrows: &'a Arrows) -> BTreeSet<&'a Name> {
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![name]);
    while let Some(from) = ahead.pop() {
        for to in arrows.get(from).into_iter().flatten() {
            if reached.insert(to) {
                ahead.push(to);
            }
        }
    }
    reached
}
