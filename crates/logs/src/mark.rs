//! The mark of files that the intake makes. It names the file: so a copy of the file at another
//! place does not count as made by the intake.

use cairn_fs::rows::ObjectAttributes;

use crate::day;

/// Name of the user metadata that holds the mark.
const NAME: &str = "cairn-log";
/// End of the names of day files.
const END: &str = ".jsonl";

/// Returns the attributes of a file that the intake makes in a bucket.
pub fn made(bucket: &str, file: &str) -> ObjectAttributes {
    let user_metadata = vec![(NAME.to_owned(), format!("{bucket}/{file}"))];
    ObjectAttributes { user_metadata, ..ObjectAttributes::default() }
}

/// Returns whether the intake made this file, at this place.
pub fn is_made(bucket: &str, file: &str, attributes: Option<&ObjectAttributes>) -> bool {
    let metadata = attributes.map_or(&[][..], |attributes| &attributes.user_metadata);
    let is_here = |value: &str| {
        value.strip_prefix(bucket).and_then(|rest| rest.strip_prefix('/')) == Some(file)
    };
    metadata.iter().any(|(name, value)| name == NAME && is_here(value))
}

/// Returns the key of the file for the records of a source that arrived on a day.
pub fn file(source: &str, day: &str) -> String {
    format!("{source}/{day}{END}")
}

/// Returns the source and the number of the day (since 1970) from the key of a file.
pub fn parse(file: &str) -> Option<(&str, i64)> {
    let (source, name) = file.split_once('/')?;
    let day = day::parse(name.strip_suffix(END)?)?;
    (!source.is_empty()).then_some((source, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_place() {
        let file = file("app", "2026-11-26");
        assert_eq!(file, "app/2026-11-26.jsonl");
        let made = made("logs-a", &file);
        assert!(is_made("logs-a", &file, Some(&made)));
        assert!(!is_made("logs-a", "kept/2026-11-26.jsonl", Some(&made)));
        assert!(!is_made("archive", &file, Some(&made)), "a copy in another bucket");
        assert!(!is_made("logs-a", &file, None), "no attributes");
        assert!(!is_made("logs-a", &file, Some(&ObjectAttributes::default())));
    }

    #[test]
    fn names_of_files_have_a_source_and_a_day() {
        assert_eq!(parse("a/1970-01-02.jsonl"), Some(("a", 1)));
        for other in ["a/1970-1-2.jsonl", "a/b/1970-01-02.jsonl", "/1970-01-02.jsonl", "a", "a/x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
