//! Dates in the form of signatures: `20130524T000000Z`.

use cairn_base::Timestamp;

/// The time at which a request was signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SignedAt {
    /// The sixteen characters that were signed.
    pub(crate) text: String,
    pub(crate) time: Timestamp,
}

impl SignedAt {
    pub(crate) fn parse(text: &str) -> Option<SignedAt> {
        let bytes = text.as_bytes();
        if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = bytes.get(from..to)?;
            digits.iter().try_fold(0i64, |number, digit| {
                digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
            })
        };
        let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
        let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
        if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
            return None;
        }
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let secs = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        Some(SignedAt { text: text.to_owned(), time: Timestamp::from_secs(secs) })
    }

    /// Reads a `Date` header.
    pub(crate) fn from_http_date(text: &str) -> Option<SignedAt> {
        // botocore and others write these zones where HTTP requires GMT.
        let stem = [" -0000", " +0000", " UTC"].iter().find_map(|zone| text.strip_suffix(zone));
        let gmt = stem.map(|stem| format!("{stem} GMT"));
        let time = httpdate::parse_http_date(gmt.as_deref().unwrap_or(text)).ok()?;
        Some(SignedAt::new(Timestamp::from_system_time(time)))
    }

    pub(crate) fn new(time: Timestamp) -> SignedAt {
        let (days, rest) = (time.secs().div_euclid(86_400), time.secs().rem_euclid(86_400));
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
        let text = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
        SignedAt { text, time }
    }

    /// Returns the time with separators: `2013-05-24T00:00:00Z`.
    pub(crate) fn extended(&self) -> String {
        let text = &self.text;
        let (year, month, day) = (&text[..4], &text[4..6], &text[6..8]);
        let (hour, minute, second) = (&text[9..11], &text[11..13], &text[13..15]);
        format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")
    }

    /// Returns the day, as in a credential's scope.
    pub(crate) fn day(&self) -> &str {
        &self.text[..8]
    }
}

fn days_of(year: i64, month: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counts days of the proleptic Gregorian calendar; years begin in March, so that the leap day is
/// last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let calendar_month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(calendar_month <= 2), calendar_month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        for secs in [0, 951_782_400, 1_369_353_600, 1_709_164_799, 4_102_444_800, 1_763_710_507] {
            let made = SignedAt::new(Timestamp::from_secs(secs));
            assert_eq!(SignedAt::parse(&made.text), Some(made));
        }
        let known = SignedAt::parse("20130524T000000Z").unwrap();
        assert_eq!((known.time.secs(), known.day()), (1_369_353_600, "20130524"));
        assert_eq!(known.extended(), "2013-05-24T00:00:00Z");
        let same = SignedAt::from_http_date("Fri, 24 May 2013 00:00:00 GMT").unwrap();
        assert_eq!(same, known);
        for zone in ["-0000", "+0000", "UTC"] {
            let text = format!("Fri, 24 May 2013 00:00:00 {zone}");
            assert_eq!(SignedAt::from_http_date(&text), Some(known.clone()), "{text}");
        }
        assert_eq!(SignedAt::from_http_date("Fri, 24 May 2013 00:00:00 +0100"), None);
    }

    #[test]
    fn nonsense_is_no_date() {
        for text in [
            "",
            "20130524T000000",
            "20130532T000000Z",
            "20130229T000000Z",
            "20131324T000000Z",
            "20130524T240000Z",
            "2013-05-24T0000Z",
            "20130524 000000Z",
            "+0130524T000000Z",
            "2013052\u{e9}000000Z",
        ] {
            assert_eq!(SignedAt::parse(text), None, "{text}");
        }
    }
}
