//! Texts of all errors of the product, for a reader who reviews them as a whole.
//!
//! A text counts if it stands in a call that makes an error. Such a call is of a constructor of an
//! error type, of a function that returns one, or of `Err`, `ok_or` or `map_err`. A text also
//! counts in the body of a function that returns an error type, and where such a type is displayed.
//! Lines of the log and texts of assertions do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fmt, fs, io};

use crate::files::rust_files;
use crate::tokens::{Word, without_tests, words};

/// Crates that no user runs.
const NOT_SHIPPED: [&str; 2] = ["sim", "xtask"];
/// Suffixes of the names of error types.
const TYPES: [&str; 7] = ["Error", "Failure", "Failed", "Refusal", "Refused", "Fault", "Garbage"];
/// Calls that make an error of their argument, whatever its type.
const MAKERS: [&str; 6] = ["Err", "ok_or", "ok_or_else", "map_err", "and", "bail"];
/// Macros whose texts only developers and readers of the log see.
const NO_ERRORS: [&str; 14] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug",
    "debug_assert",
    "error",
    "info",
    "panic",
    "println",
    "trace",
    "unreachable",
    "warn",
    "span",
    "include_str",
];
/// Names that error types share with others.
const SHARED_NAMES: [&str; 5] = ["new", "from", "of", "and", "copy"];

/// A text, its first line, and the call that makes an error of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorText {
    pub line: usize,
    /// The call, such as `Error::Denied`; empty in a function that returns an error.
    pub maker: String,
    pub text: String,
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorText { line, maker, text } = self;
        if maker.is_empty() {
            write!(f, "{line}: {text}")
        } else {
            write!(f, "{line}: [{maker}] {text}")
        }
    }
}

/// Returns all texts below `root` by crate, each as a line `file:line: [maker] text`.
pub fn list(root: &Path) -> io::Result<BTreeMap<String, Vec<String>>> {
    let mut listed = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if NOT_SHIPPED.contains(&name.as_str()) {
            continue;
        }
        let mut sources = Vec::new();
        for file in rust_files(&entry.path().join("src")) {
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            if !crate::proto::is_made(&shown) {
                sources.push((shown, without_tests(words(&fs::read_to_string(&file)?))));
            }
        }
        let makers: BTreeSet<String> =
            sources.iter().flat_map(|(_, words)| functions(words)).collect();
        let texts = sources.iter().flat_map(|(file, words)| {
            in_words(words, &makers).into_iter().map(move |found| format!("{file}:{found}"))
        });
        listed.insert(name, texts.collect());
    }
    Ok(listed)
}

/// Returns the texts of errors in one source file.
pub fn in_text(text: &str) -> Vec<ErrorText> {
    let words = without_tests(words(text));
    let makers = functions(&words).into_iter().collect();
    in_words(&words, &makers)
}

fn is_error_type(name: &str) -> bool {
    TYPES.iter().any(|end| name.ends_with(end))
}

/// Returns the names of functions that return an error type, and of closures that make one.
fn functions(words: &[Word]) -> Vec<String> {
    let mut names = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let name = words.get(at + 1).map_or("", |word| word.text.as_str());
        let is_maker = match word.text.as_str() {
            "fn" => returns_error(&words[at..]),
            "let" => {
                let closure = words[at..].iter().skip(2).take(30).map(|word| word.text.as_str());
                let body: Vec<&str> = closure.collect();
                let is_closure = body.first() == Some(&"=")
                    && body.get(1).is_some_and(|it| ["|", "move"].contains(it));
                is_closure && closure_makes_error(&body[1..])
            }
            _ => false,
        };
        if is_maker && !word.is_literal && !SHARED_NAMES.contains(&name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns true if the first path after the arguments of a closure is that of an error type.
fn closure_makes_error(words: &[&str]) -> bool {
    let bars = words.iter().enumerate().filter(|(_, word)| **word == "|");
    let Some((end, _)) = bars.take(2).last() else { return false };
    let body = words[end + 1..].iter().skip_while(|word| **word == "{");
    body.take(3).any(|word| is_error_type(word))
}

/// Returns true if the function that begins here returns an error type, or a function that does.
fn returns_error(words: &[Word]) -> bool {
    let signature: Vec<&str> = words
        .iter()
        .take_while(|word| !["{", ";", "where"].contains(&word.text.as_str()))
        .map(|word| word.text.as_str())
        .collect();
    // The last arrow counts: after an arrow within the arguments there is only the type of a
    // closure.
    let arrow = signature.windows(2).rposition(|pair| pair == ["-", ">"]);
    let Some(arrow) = arrow else { return false };
    let mut path = signature[arrow + 2..].iter().filter(|word| **word != "::");
    path.next_back().is_some_and(|name| is_error_type(name))
}

/// Meaning of an open bracket for the texts in it.
#[derive(Clone, PartialEq, Eq)]
enum Within {
    /// Texts here are errors, made by this call.
    Error(String),
    /// Texts here are no errors, whatever surrounds the bracket.
    Other,
    /// Texts here are what they are outside of the bracket.
    Same,
}

fn in_words(words: &[Word], makers: &BTreeSet<String>) -> Vec<ErrorText> {
    let mut found = Vec::new();
    let mut open: Vec<Within> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if word.is_literal {
            let around = open.iter().rev().find(|within| **within != Within::Same);
            if let Some(Within::Error(maker)) = around
                && word.text.chars().any(char::is_alphabetic)
            {
                let (maker, text) = (maker.clone(), shown(&word.text));
                found.push(ErrorText { line: word.line, maker, text });
            }
            continue;
        }
        match word.text.as_str() {
            "(" | "[" => open.push(before_call(&words[..at], makers)),
            "{" => open.push(before_block(&words[..at])),
            ")" | "]" | "}" => {
                open.pop();
            }
            _ => {}
        }
    }
    found
}

/// Returns the meaning of a parenthesis for its arguments, by the path before it.
fn before_call(before: &[Word], makers: &BTreeSet<String>) -> Within {
    let word = |back: usize| {
        before.len().checked_sub(back).and_then(|at| before.get(at)).map_or("", |it| &it.text)
    };
    if word(1) == "#" || (word(1) == "!" && NO_ERRORS.contains(&word(2))) {
        return Within::Other;
    }
    let name = if word(1) == "!" { word(2) } else { word(1) };
    if word(2) == "fn" {
        return Within::Other;
    }
    if word(2) == "::" && is_error_type(word(3)) {
        return Within::Error(format!("{}::{name}", word(3)));
    }
    let is_maker = is_error_type(name) || makers.contains(name) && word(2) != ".";
    if is_maker || MAKERS.contains(&name) {
        return Within::Error(name.to_owned());
    }
    if name == "expect" { Within::Other } else { Within::Same }
}

/// Returns the meaning of a brace, by the words before it: a function or an implementation begins,
/// or the fields of an error.
fn before_block(before: &[Word]) -> Within {
    let is_end = |word: &Word| ["{", "}", ";"].contains(&word.text.as_str()) && !word.is_literal;
    let start = before.iter().rposition(is_end).map_or(0, |at| at + 1);
    let head = &before[start..];
    let has = |name: &str| head.iter().any(|word| word.text == name);
    if let Some(at) = head.iter().position(|word| word.text == "fn") {
        // Within `impl Display for SomeError`, texts keep the meaning of their surroundings.
        let name = head.get(at + 1).map_or("", |word| word.text.as_str());
        return match (name, returns_error(&head[at..])) {
            ("fmt", _) => Within::Same,
            (_, true) => Within::Error(String::new()),
            (_, false) => Within::Other,
        };
    }
    if has("impl") {
        let is_shown = has("Display") && head.last().is_some_and(|it| is_error_type(&it.text));
        return if is_shown { Within::Error(String::new()) } else { Within::Other };
    }
    let last = |back: usize| head.len().checked_sub(back).map_or("", |at| head[at].text.as_str());
    match (last(3), last(2), last(1)) {
        (name, "::", kind) if is_error_type(name) => Within::Error(format!("{name}::{kind}")),
        (_, _, name) if is_error_type(name) => Within::Error(name.to_owned()),
        _ => Within::Same,
    }
}

/// Returns a text on one line.
fn shown(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start()).replace('\n', "\\n")
}
