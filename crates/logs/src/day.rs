//! Times as text.

use cairn_base::{Timestamp, day};

const NS: i64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

/// Returns the number of the day of a time, counted from 1970-01-01 (UTC).
pub fn number(time: Timestamp) -> i64 {
    time.0.div_euclid(NS * DAY_S)
}

/// Returns the date with this number, in the form `2026-11-26`.
pub fn name(number: i64) -> String {
    day(start(number))
}

/// Returns the time at which a day begins.
pub fn start(number: i64) -> Timestamp {
    Timestamp(number.saturating_mul(NS * DAY_S))
}

/// Returns the number of a date in the form `2026-11-26`; `None` for anything else.
pub fn parse(text: &str) -> Option<i64> {
    let mut parts = text.split('-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    // Hinnant's `days_from_civil`, for years from 0 on.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (y / 400, y % 400);
    let of_year = (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    // Only the exact form that [`name`] writes counts: no 30th of February, no sign.
    (name(days) == text).then_some(days)
}

/// Formats a time in UTC to the nanosecond: `2026-11-26T13:31:57.000000001Z`.
pub fn rfc3339(time: Timestamp) -> String {
    let (seconds, ns) = (time.0.div_euclid(NS), time.0.rem_euclid(NS));
    let of_day = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z", day(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_rfc_3339() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400 * NS, "2000-02-29T00:00:00.000000000Z"),
            (1_795_699_917 * NS + 5, "2026-11-26T13:31:57.000000005Z"),
            (4_107_542_399 * NS, "2100-02-28T23:59:59.000000000Z"),
            (4_107_542_400 * NS, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp(ns)), text);
        }
        let _ = (rfc3339(Timestamp(i64::MAX)), rfc3339(Timestamp(i64::MIN)));
    }

    #[test]
    fn days_are_read_as_they_are_written() {
        for number in (0..80_000).step_by(17) {
            assert_eq!(parse(&name(number)), Some(number));
            assert_eq!(super::number(start(number)), number);
        }
        for bad in [
            "",
            "2026-11",
            "2026-02-30",
            "2026-13-01",
            "+026-01-01",
            "2026-1-1",
            "2026-01-01-",
            "x",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
