//! The level (severity) of a record, found in its line.

use std::sync::LazyLock;

use cairn_base::Error;
use memchr::memmem::Finder;

use crate::json::Cursor;

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

/// Members that have the level, by the object in the line in which they are; the first of them
/// with a valid level counts. Lines of OpenTelemetry and syslog have it in the line itself, those
/// of Loki in labels, documents and journals in the event.
const PLACES: [(&str, &[&str]); 5] = [
    ("", &["severity", "level", NUMBER]),
    ("labels", &["level", "detected_level"]),
    ("metadata", &["level", "detected_level"]),
    ("event", &["level", "log.level", "severity", "PRIORITY", LOG]),
    ("attributes", &["level", "log.level", "severity"]),
];
/// The severity number of OpenTelemetry.
const NUMBER: &str = "severity_number";
/// An object in an event, whose member `level` counts.
const LOG: &str = "log";

/// A level; smaller is more severe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(usize);

impl Level {
    pub fn parse(text: &str) -> Result<Level, String> {
        of(text).ok_or_else(|| {
            "use emerg, alert, crit, err, warning, notice, info, debug or trace".to_owned()
        })
    }

    /// Returns the level of a line's record, if the line has one. A search and the metrics both ask
    /// this.
    pub fn of_line(line: &[u8]) -> Option<Level> {
        // Most of the work is for lines that have a level at all.
        if !NAMES.iter().any(|name| name.find(line).is_some()) {
            return None;
        }
        let mut best = Best(None);
        Cursor::new(line).ok()?.object(|cursor, name| best.member(cursor, name)).ok()?;
        best.0.map(|(_, level)| level)
    }
}

/// Parts of the names of all members that can have a level.
static NAMES: LazyLock<[Finder<'static>; 3]> =
    LazyLock::new(|| ["level", "severity", "PRIORITY"].map(Finder::new));

/// The level found so far, with the place of its member: a smaller place is a better one.
struct Best(Option<((usize, usize), Level)>);

impl Best {
    /// Reads a member of the line, or of an object in it that may have a level.
    fn member(&mut self, cursor: &mut Cursor<'_>, name: &str) -> Result<(), Error> {
        let of_name = |(object, _): &(&str, &[&str])| !object.is_empty() && *object == name;
        match PLACES.iter().position(of_name) {
            Some(place) if cursor.kind() == Some(b'{') => {
                cursor.object(|cursor, name| self.value(place, cursor, name))
            }
            Some(_) => cursor.skip(),
            None => self.value(0, cursor, name),
        }
    }

    /// Reads a value of an object that may have a level.
    fn value(&mut self, place: usize, cursor: &mut Cursor<'_>, name: &str) -> Result<(), Error> {
        let (_, names) = PLACES[place];
        let Some(rank) = names.iter().position(|known| *known == name) else {
            return cursor.skip();
        };
        let mut found = None;
        match cursor.kind() {
            Some(b'{') if name == LOG => cursor.object(|cursor, name| match cursor.kind() {
                Some(b'"') if name == "level" => {
                    found = of(&cursor.string()?);
                    Ok(())
                }
                _ => cursor.skip(),
            })?,
            Some(b'{' | b'[') => cursor.skip()?,
            _ => {
                let text = cursor.string_or_number()?;
                found =
                    if name == NUMBER { text.parse().ok().and_then(of_number) } else { of(&text) };
            }
        }
        let place = (place, rank);
        if let Some(level) = found
            && self.0.is_none_or(|(best, _)| place < best)
        {
            self.0 = Some((place, level));
        }
        Ok(())
    }
}

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

    /// Returns the class of a line's level.
    pub fn of_line(line: &[u8]) -> LevelClass {
        match Level::of_line(line).map(|Level(level)| level) {
            Some(..=3) => LevelClass::Error,
            Some(4) => LevelClass::Warning,
            Some(5 | 6) => LevelClass::Info,
            Some(_) => LevelClass::Debug,
            None => LevelClass::None,
        }
    }
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
        for (line, level, class) in [
            (r#"{"severity":"err"}"#, Some("error"), LevelClass::Error),
            (r#"{"severity":"WARN2","body":"x"}"#, Some("warning"), LevelClass::Warning),
            (r#"{"severity_number":17,"severity":"WARN2"}"#, Some("warning"), LevelClass::Warning),
            (r#"{"severity_number":17}"#, Some("err"), LevelClass::Error),
            (r#"{"severity_number":99}"#, None, LevelClass::None),
            (r#"{"level":"fatal","a":1}"#, Some("crit"), LevelClass::Error),
            (r#"{"labels":{"level":"Debug"}}"#, Some("debug"), LevelClass::Debug),
            (r#"{"labels":[],"event":{"PRIORITY":"6"}}"#, Some("info"), LevelClass::Info),
            (r#"{"event":{"PRIORITY":3}}"#, Some("err"), LevelClass::Error),
            (r#"{"event":{"log":{"a":{},"level" : "fatal"}}}"#, Some("crit"), LevelClass::Error),
            (r#"{"event":{"log.level":"trace"}}"#, Some("trace"), LevelClass::Debug),
            (
                r#"{"event":{"severity":"alert","level":"notice"}}"#,
                Some("notice"),
                LevelClass::Info,
            ),
            (r#"{"attributes":{"level":"warn"},"body":"x"}"#, Some("warning"), LevelClass::Warning),
            // A level of something else, or within a text.
            (r#"{"event":{"request":{"level":"error"}}}"#, None, LevelClass::None),
            (r#"{"event":{"log":{"a":{"level":"error"}}}}"#, None, LevelClass::None),
            (
                r#"{"line":"\"level\":\"error\"","labels":{"level":"trace"}}"#,
                Some("trace"),
                LevelClass::Debug,
            ),
            (r#"{"severity":"loud","event":{"level":["err"]}}"#, None, LevelClass::None),
            (r#"{"event":{"message":"level"}}"#, None, LevelClass::None),
            (r#"{"event":{"level"#, None, LevelClass::None),
            ("no JSON of a level", None, LevelClass::None),
        ] {
            let expected = level.map(|level| Level::parse(level).unwrap());
            assert_eq!(Level::of_line(line.as_bytes()), expected, "{line}");
            assert_eq!(LevelClass::of_line(line.as_bytes()), class, "{line}");
        }
        assert!(Level::parse("err").unwrap() < Level::parse("warning").unwrap());
        assert!(Level::parse("loud").is_err() && Level::parse("9").is_err());
    }
}
