//! The position of a follower: an offset of a file, or offsets in the files of some days of a
//! source.

use std::fmt::Write as _;

use crate::day;

/// Number of files of a source in a position: yesterday's is followed, too, for a while after
/// midnight.
const DAYS: usize = 8;

/// The offset up to which bytes were sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Position {
    Offset(u64),
    /// Numbers of days, in order, each with the offset in its file.
    Days(Vec<(i64, u64)>),
}

impl Position {
    /// Reads `1234`, or `2026-11-26:1234` and further days, separated by commas.
    pub fn parse(text: &str) -> Option<Position> {
        if !text.contains(':') {
            return offset(text).map(Position::Offset);
        }
        let mut days: Vec<(i64, u64)> = Vec::new();
        for part in text.split(',') {
            let (day, at) = part.split_once(':')?;
            let day = (day::parse(day)?, offset(at)?);
            if days.len() == DAYS || days.last().is_some_and(|last| last.0 >= day.0) {
                return None;
            }
            days.push(day);
        }
        Some(Position::Days(days))
    }

    pub fn text(&self) -> String {
        match self {
            Position::Offset(at) => at.to_string(),
            Position::Days(days) => {
                let mut text = String::new();
                for (number, at) in days {
                    let comma = if text.is_empty() { "" } else { "," };
                    // Writing to a `String` cannot fail.
                    let _ = write!(text, "{comma}{}:{at}", day::name(*number));
                }
                text
            }
        }
    }
}

fn offset(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        for text in ["0", "18446744073709551615", "2026-11-26:5", "2026-11-26:5,2026-11-27:0"] {
            assert_eq!(Position::parse(text).unwrap().text(), text);
        }
        let many = (1..=9).map(|day| format!("2026-11-0{day}:1")).collect::<Vec<_>>().join(",");
        for bad in [
            "",
            "-1",
            "+1",
            "1e3",
            "18446744073709551616",
            ":",
            "2026-11-26:",
            "2026-11-26:x",
            "x:1",
            "2026-11-27:0,2026-11-26:5",
            "2026-11-26:0,2026-11-26:5",
            &many,
        ] {
            assert_eq!(Position::parse(bad), None, "{bad}");
        }
    }
}
