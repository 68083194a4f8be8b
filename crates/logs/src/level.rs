//! The level (severity) of a record, found in its line.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

/// Names of levels, the most severe first, as in syslog; the last level is below all levels of
/// syslog.
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

/// JSON pointers to the level in lines from syslog and OpenTelemetry, Loki, documents, and
/// journals.
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

/// A level; smaller is more severe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(usize);

impl Level {
    pub fn parse(text: &str) -> Result<Level, String> {
        of(text).ok_or_else(|| {
            "use emerg, alert, crit, err, warning, notice, info, debug or trace".to_owned()
        })
    }

    /// Returns the level of a line's record, if the line has one.
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

/// Names of members that have the level, in quotes. The first of them that a line has with a valid
/// level counts.
static MEMBERS: LazyLock<[Finder<'static>; 6]> = LazyLock::new(|| {
    ["\"severity\"", "\"level\"", "\"detected_level\"", "\"log.level\"", "\"PRIORITY\"", NUMBER]
        .map(Finder::new)
});
const NUMBER: &str = "\"severity_number\"";

/// The level of a record as metrics count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelClass {
    Error,
    Warning,
    Info,
    Debug,
    /// The record has no level.
    None,
}

impl LevelClass {
    pub const NAMES: [&str; 5] = ["error", "warning", "info", "debug", "none"];

    /// Returns the level of a line without parsing its JSON: within a text, these names have no
    /// plain quotes.
    pub fn of_line(line: &[u8]) -> LevelClass {
        let level = MEMBERS.iter().find_map(|name| {
            let value = member(line, name)?;
            if name.needle() == NUMBER.as_bytes() {
                of_number(value.parse().ok()?)
            } else {
                of(value)
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

/// Returns the value of the first member of this name, without quotes.
fn member<'a>(line: &'a [u8], name: &Finder<'_>) -> Option<&'a str> {
    let at = name.find(line)?;
    let rest = line.get(at + name.needle().len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

/// Returns the level for a severity number of OpenTelemetry, which has four numbers for each.
fn of_number(number: usize) -> Option<Level> {
    let level = *[8, 7, 6, 4, 3, 2].get(number.checked_sub(1)? / 4)?;
    Some(Level(level))
}

fn of(text: &str) -> Option<Level> {
    if let Ok(number @ 0..8) = text.parse::<usize>() {
        return Some(Level(number));
    }
    // OpenTelemetry has names such as WARN2.
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
