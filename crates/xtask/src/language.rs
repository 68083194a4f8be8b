//! The language of the code: comments that are fragments, types that are bare participles, and
//! parameters that are tuples. What is left of them is counted for each crate, and may only become
//! less.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::files::rust_files;

/// Counts of one crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LanguageCounts {
    /// Comments that begin without a subject, or have a turn that takes two readings.
    pub stilted_comments: usize,
    /// Types whose name is a bare participle.
    pub participles: usize,
    pub tuple_parameters: usize,
}

/// Crates with a count that is not zero. Most comments of `bench` and `cairn` that are counted are
/// texts of `--help`; others are whole sentences that only begin alike.
const LEFT: [(&str, LanguageCounts); 11] = [
    ("auth", left(0, 1, 0)),
    ("bench", left(6, 0, 0)),
    ("blocks", left(1, 0, 0)),
    ("cairn", left(30, 0, 0)),
    ("cluster", left(5, 2, 0)),
    ("console", left(1, 0, 0)),
    ("doctor", left(2, 0, 0)),
    ("doors", left(1, 0, 0)),
    ("fs", left(0, 0, 2)),
    ("logs", left(1, 0, 0)),
    ("meta", left(0, 2, 1)),
];

/// Returns the counts of stilted comments, of participles and of tuple parameters.
const fn left(
    stilted_comments: usize,
    participles: usize,
    tuple_parameters: usize,
) -> LanguageCounts {
    LanguageCounts { stilted_comments, participles, tuple_parameters }
}

/// Folders of a crate that are not looked at.
const APART: [&str; 3] = ["tests", "benches", "examples"];
/// Comments do not begin with these words: they have no subject.
const OPENINGS: [&str; 8] = ["Of", "The same", "What", "How", "Whether", "Where", "When", "Who"];
/// Words after `That` or `Those` that make it a fragment.
const AFTER_THAT: [&str; 12] =
    ["of", "which", "are", "is", "has", "have", "was", "were", "a", "the", "an", "in"];
/// Words after `As` that make it a fragment.
const AFTER_AS: [&str; 6] = ["it", "they", "many", "long", "the", "those"];
/// Turns that take two readings.
const TURNS: [&str; 12] = [
    "for who",
    "to who",
    "by who",
    "of who",
    "than who",
    "one that",
    "ones that",
    "is told",
    "are told",
    "was told",
    "been told",
    "but for",
];
/// Irregular participles.
const IRREGULAR: [&str; 27] = [
    "Told", "Held", "Kept", "Sent", "Seen", "Known", "Given", "Shown", "Found", "Said", "Made",
    "Done", "Gone", "Lost", "Taken", "Left", "Read", "Written", "Begun", "Drawn", "Meant", "Cut",
    "Put", "Set", "Spent", "Brought", "Caught",
];
/// Nouns that end like participles.
const NOUNS: [&str; 5] = ["Embed", "Need", "Seed", "Feed", "Speed"];

/// Returns each crate below `root` whose counts are others than those that are known, and where it
/// has what is counted.
pub fn check(root: &Path) -> Vec<String> {
    let known: BTreeMap<&str, LanguageCounts> = LEFT.into_iter().collect();
    let mut findings = Vec::new();
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    for entry in crates {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (found, places) = count_crate(root, &entry.path());
        let known = known.get(name.as_str()).copied().unwrap_or_default();
        if found != known {
            findings.push(format!(
                "crates/{name}: {found:?}, and language.rs has {known:?}: mend what is new, or \
                 lower the count"
            ));
            findings.extend(places);
        }
    }
    findings
}

fn count_crate(root: &Path, path: &Path) -> (LanguageCounts, Vec<String>) {
    let (mut counts, mut places) = (LanguageCounts::default(), Vec::new());
    for file in rust_files(path) {
        let inside = file.strip_prefix(path).unwrap_or(&file);
        let first = inside.components().next().map(|part| part.as_os_str().to_string_lossy());
        let is_apart = first.is_some_and(|first| APART.contains(&first.as_ref()));
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if is_apart || crate::proto::is_made(&name) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let found = count(&text);
        counts.stilted_comments += found.stilted_comments;
        counts.participles += found.participles;
        counts.tuple_parameters += found.tuple_parameters;
        if found != LanguageCounts::default() {
            let stilted = comments(&text).into_iter().find(|comment| is_stilted(comment));
            let stilted: String = stilted.unwrap_or_default().chars().take(60).collect();
            places.push(format!("{name}: {found:?} {stilted}"));
        }
    }
    (counts, places)
}

/// Counts what one file has.
pub fn count(text: &str) -> LanguageCounts {
    LanguageCounts {
        stilted_comments: comments(text).iter().filter(|comment| is_stilted(comment)).count(),
        participles: text.lines().filter_map(type_name).filter(|name| is_participle(name)).count(),
        tuple_parameters: parameters(text).filter(|parameter| is_tuple(parameter)).count(),
    }
}

/// Runs of lines that are comments, each as one text.
fn comments(text: &str) -> Vec<String> {
    let mut comments = vec![String::new()];
    for line in text.lines() {
        let line = line.trim_start();
        let comment = line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
        match (comment, comments.last_mut()) {
            (Some(comment), Some(last)) => {
                last.push_str(comment.trim());
                last.push(' ');
            }
            (None, Some(last)) if !last.is_empty() => comments.push(String::new()),
            _ => {}
        }
    }
    comments
}

fn is_stilted(comment: &str) -> bool {
    let comment = comment.trim();
    let begins = |word: &str| {
        comment.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', ',', '.', ':']))
    };
    let second = comment.split_whitespace().nth(1).unwrap_or_default();
    let that = (begins("That") || begins("Those")) && AFTER_THAT.contains(&second);
    let like = begins("As") && (AFTER_AS.contains(&second) || second.starts_with(['`', '[']));
    let turn = |turn: &str| {
        comment.match_indices(turn).any(|(at, _)| {
            let before = comment[..at].chars().next_back();
            let after = comment[at + turn.len()..].chars().next();
            let is_edge = |side: Option<char>| side.is_none_or(|side| !side.is_alphanumeric());
            is_edge(before) && is_edge(after)
        })
    };
    OPENINGS.into_iter().any(begins) || that || like || TURNS.into_iter().any(turn)
}

/// Returns the name of the type that a line defines.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let rest = ["struct ", "enum ", "trait "].iter().find_map(|word| line.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

fn is_participle(name: &str) -> bool {
    let is_word = name.chars().skip(1).all(|c| c.is_ascii_lowercase());
    let is_regular = is_word && name.len() > 3 && name.ends_with("ed") && !NOUNS.contains(&name);
    is_regular || IRREGULAR.contains(&name)
}

/// Returns the parameters of all functions, each as its text.
fn parameters(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.match_indices("fn ").filter(|(at, _)| {
        text[..*at].chars().next_back().is_none_or(|before| !before.is_alphanumeric())
    });
    functions.flat_map(|(at, _)| {
        let head = &text[at + 3..];
        let name = head.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
        let opens = head[name..].find('(').filter(|opens| {
            let generics = &head[name..name + opens];
            name > 0 && (generics.is_empty() || generics.starts_with('<'))
        });
        opens.map_or_else(Vec::new, |opens| split_list(&head[name + opens + 1..]))
    })
}

/// Returns the members of a list up to the parenthesis that closes it.
fn split_list(text: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                members.push(&text[start..at]);
                break;
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                members.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    members
}

/// Returns whether a parameter takes a tuple apart.
fn is_tuple(parameter: &str) -> bool {
    let parameter = parameter.trim_start();
    parameter.starts_with('(') && parameter.contains("): (")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_has_a_subject() {
        for stilted in [
            "Of the last pass.",
            "That of a node",
            "As `find`, but later",
            "The same, sorted",
            "Whether it is",
            "Who asks",
            "Says what is told, for who asks",
            "The last one that counts",
        ] {
            assert!(is_stilted(stilted), "{stilted}");
        }
        for plain in ["Returns the last pass.", "Offers room", "Whatever comes", "Assigns a number"]
        {
            assert!(!is_stilted(plain), "{plain}");
        }
    }

    #[test]
    fn a_type_is_a_noun() {
        let text = "pub struct Held;\npub(super) enum Asked {}\nstruct Seed;\nstruct AskedFor;\n";
        assert_eq!(count(text).participles, 2);
        assert_eq!(count("trait Kept<T> {}\n// struct Lost").participles, 1);
    }

    #[test]
    fn a_tuple_has_names_of_its_own() {
        let tuple = "(a, b): (u8, u8)";
        let text = format!("fn one({tuple}, c: (u8, u8)) {{}}\nfn two<T>(\n    {tuple},\n) {{}}");
        assert_eq!(count(&text).tuple_parameters, 2);
        assert_eq!(count("let f = |(a, b): (u8, u8)| a;").tuple_parameters, 0);
    }

    #[test]
    fn lines_of_a_comment_are_one_text() {
        let text = "/// Returns the room\n/// Of a part.\nfn f() {}\n//! Where it is.\n";
        assert_eq!(count(text).stilted_comments, 1);
    }
}
