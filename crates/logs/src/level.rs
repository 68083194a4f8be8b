//! How severe a record is, by what its line has.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

/// Names, the most severe first, as syslog has them; the last one is below all of its.
const LEVELS: [&[&str]; 9] = [
    &["emerg", "emergency", "panic"],
    &["alert"],
    &["crit", "critical", "fatal"],
    &["err", "error"],
    &["warning", "warn"],
    &["notice"],
    &["info", "information", "informational"],
    &["debug"],
    &["trace"],
];

/// Where lines have it: of syslog and OpenTelemetry, of Loki, of documents, and of journals.
const PLACES: [&str; 9] = [
    "/severity",
    "/labels/level",
    "/labels/detected_level",
    "/metadata/level",
    "/metadata/detected_level",
    "/event/level",
    "/event/log.level",
    "/event/severity",
    "/event/PRIORITY",
];

/// Smaller is more severe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(usize);

impl Level {
    pub fn parse(text: &str) -> Result<Level, String> {
        of(text).ok_or_else(|| {
            "use emerg, alert, crit, err, warning, notice, info, debug or trace".to_owned()
        })
    }

    /// That of the record of a line, if it says so.
    pub fn of_line(line: &[u8]) -> Option<Level> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let found = PLACES.iter().find_map(|place| match line.pointer(place) {
            Some(Value::String(text)) => of(text),
            Some(Value::Number(number)) => of(&number.to_string()),
            _ => None,
        });
        found.or_else(|| match line.pointer("/event/log/level") {
            Some(Value::String(text)) => of(text),
            _ => None,
        })
    }
}

/// Members of lines that have the level, and how they are written: the first one that is there
/// counts.
static MEMBERS: LazyLock<[Finder<'static>; 6]> = LazyLock::new(|| {
    ["\"severity\"", "\"level\"", "\"detected_level\"", "\"log.level\"", "\"PRIORITY\"", NUMBER]
        .map(Finder::new)
});
const NUMBER: &str = "\"severity_number\"";

/// How severe records are, as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelClass {
    Error,
    Warning,
    Info,
    Debug,
    /// The record does not say.
    None,
}

impl LevelClass {
    pub const NAMES: [&str; 5] = ["error", "warning", "info", "debug", "none"];

    /// That of a line, found without reading it as JSON: within a text no such name has its quotes.
    pub fn of_line(line: &[u8]) -> LevelClass {
        let level = MEMBERS.iter().find_map(|name| {
            let value = member(line, name)?;
            match name.needle() == NUMBER.as_bytes() {
                true => of_number(value.parse().ok()?),
                false => of(value),
            }
        });
        match level.map(|Level(level)| level) {
            Some(..=3) => LevelClass::Error,
            Some(4) => LevelClass::Warning,
            Some(5 | 6) => LevelClass::Info,
            Some(_) => LevelClass::Debug,
            None => LevelClass::None,
        }
    }
}

/// The value of the first member of this name, without quotes.
fn member<'a>(line: &'a [u8], name: &Finder<'_>) -> Option<&'a str> {
    let at = name.find(line)?;
    let rest = line.get(at + name.needle().len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

/// A severity of OpenTelemetry: four numbers for each.
fn of_number(number: usize) -> Option<Level> {
    let level = *[8, 7, 6, 4, 3, 2].get(number.checked_sub(1)? / 4)?;
    Some(Level(level))
}

fn of(text: &str) -> Option<Level> {
    if let Ok(number @ 0..8) = text.parse::<usize>() {
        return Some(Level(number));
    }
    // OpenTelemetry has WARN2 and the like.
    let name = text.trim_end_matches(|char: char| char.is_ascii_digit()).to_ascii_lowercase();
    LEVELS.iter().position(|names| names.contains(&name.as_str())).map(Level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_a_line_is_where_its_protocol_has_it() {
        for (line, level) in [
            (r#"{"severity":"err"}"#, Some("error")),
            (r#"{"severity":"WARN2","body":"x"}"#, Some("warning")),
            (r#"{"labels":{"level":"Debug"}}"#, Some("debug")),
            (r#"{"event":{"PRIORITY":"6"}}"#, Some("info")),
            (r#"{"event":{"PRIORITY":3}}"#, Some("err")),
            (r#"{"event":{"log":{"level":"fatal"}}}"#, Some("crit")),
            (r#"{"event":{"log.level":"trace"}}"#, Some("trace")),
            (r#"{"severity":"loud"}"#, None),
            ("no JSON", None),
        ] {
            let expected = level.map(|level| Level::parse(level).unwrap());
            assert_eq!(Level::of_line(line.as_bytes()), expected, "{line}");
        }
        for (line, class) in [
            (r#"{"severity":"err"}"#, LevelClass::Error),
            (r#"{"severity_number":17,"severity":"WARN2"}"#, LevelClass::Warning),
            (r#"{"severity_number":17}"#, LevelClass::Error),
            (r#"{"severity_number":99}"#, LevelClass::None),
            (r#"{"event":{"log":{"level" : "Fatal"}}}"#, LevelClass::Error),
            (r#"{"event":{"PRIORITY":"5"}}"#, LevelClass::Info),
            (r#"{"line":"\"level\":\"error\"","labels":{"level":"trace"}}"#, LevelClass::Debug),
            (r#"{"event":{"message":"level"}}"#, LevelClass::None),
            (r#"{"event":{"level"#, LevelClass::None),
        ] {
            assert_eq!(LevelClass::of_line(line.as_bytes()), class, "{line}");
        }
        assert!(Level::parse("err").unwrap() < Level::parse("warning").unwrap());
        assert!(Level::parse("loud").is_err() && Level::parse("9").is_err());
    }
}
