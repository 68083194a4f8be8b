//! Formats times as text.

use crate::clock::Timestamp;

/// Formats a time as RFC 3339 in UTC with milliseconds. Years beyond four digits are written out.
pub fn rfc3339(time: Timestamp) -> String {
    let secs = time.secs();
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = time.subsec_nanos() / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns the day of a time in UTC: `2026-11-26`.
pub fn day(time: Timestamp) -> String {
    let (year, month, day) = civil(time.secs().div_euclid(86_400));
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns the date of a day counted from 1970-01-01, in the proleptic Gregorian calendar (Howard
/// Hinnant, "chrono-compatible low-level date algorithms"). Years begin in March here, so that the
/// leap day is the last one.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year_of_era + era * 400 + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        let shown = |secs| rfc3339(Timestamp::from_secs(secs));
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(784_111_777), "1994-11-06T08:49:37.000Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.000Z");
        assert_eq!(rfc3339(Timestamp(1_999_000_000)), "1970-01-01T00:00:01.999Z");
        assert_eq!(day(Timestamp::from_secs(951_782_400)), "2000-02-29");
        rfc3339(Timestamp(i64::MAX));
        rfc3339(Timestamp(i64::MIN));
    }
}
