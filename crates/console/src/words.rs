//! Numbers, sizes and times as people read them.

use cairn_base::{Error, Result, Timestamp, rfc3339};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Shows a size, such as `1.5 MiB`. Below 1024 it is exact.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Parses a number of bytes, or of a unit such as `500 GiB`; none for an empty text.
///
/// # Errors
/// `Invalid` for anything else.
pub fn parse_size(text: &str) -> Result<Option<u64>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let bad =
        || Error::Invalid(format!("size {text:?}: use a number of bytes, or such as 500 GiB"));
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let shift = match &*unit {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "p" | "pib" => 50,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).map(Some).ok_or_else(bad)
}

/// Shows a number, such as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Shows a number of things: `1 object`, `2 objects`.
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// Shows a time, such as `2026-11-26 17:05`, in UTC.
pub fn time(time: Timestamp) -> String {
    let whole = rfc3339(time);
    let shown = whole.get(..16).unwrap_or(&whole);
    shown.replace('T', " ")
}

/// Characters that stay as they are in a query.
const QUERY: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

pub fn in_query(text: &str) -> String {
    utf8_percent_encode(text, &QUERY).to_string()
}

/// Encodes text as `ext-value` of RFC 8187, for a header.
pub fn in_header(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_or_two() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [("0", 0), ("17 B", 17), ("3 gib", 3 << 30), ("500GiB", 500 << 30)] {
            assert_eq!(parse_size(text).unwrap(), Some(bytes), "{text}");
        }
        assert_eq!(parse_size("  ").unwrap(), None);
        for bad in ["x", "-1", "1.5 GiB", "1 GB", "99999999999 PiB", "1 2"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_and_times() {
        for (number, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), shown);
        }
        assert_eq!([counted(1, "object"), counted(0, "object")], ["1 object", "0 objects"]);
        assert_eq!(time(Timestamp::from_secs(1_767_225_600)), "2026-01-01 00:00");
    }

    #[test]
    fn keys_are_written_into_queries() {
        assert_eq!(in_query("a b/ü?&#=+.txt"), "a%20b/%C3%BC%3F%26%23%3D%2B.txt");
    }
}
