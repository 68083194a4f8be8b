//! How severe a record is, by what its line has.

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
        assert!(Level::parse("err").unwrap() < Level::parse("warning").unwrap());
        assert!(Level::parse("loud").is_err() && Level::parse("9").is_err());
    }
}
