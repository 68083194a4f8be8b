//! A few facts of a certificate: its name, and the time of its validity.
//!
//! Libraries verify certificates. These facts are for messages, and for signing.
#![deny(clippy::indexing_slicing)]

use std::time::Duration;

use rustls::pki_types::UnixTime;

const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
/// Object identifier `2.5.4.3`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Fields of a certificate. None of them is verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Common name of its subject, if the subject has one name and nothing else.
    pub common_name: Option<String>,
    pub not_before: UnixTime,
    pub not_after: UnixTime,
}

/// Reads a certificate in DER; `None` for bytes that are none.
pub fn facts(der: &[u8]) -> Option<Facts> {
    let (certificate, _) = take(der, SEQUENCE)?;
    let (signed, _) = take(certificate, SEQUENCE)?;
    let rest = take(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, rest) = take(rest, INTEGER)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    let (validity, rest) = take(rest, SEQUENCE)?;
    let (subject, _) = take(rest, SEQUENCE)?;
    let (not_before, validity) = take_time(validity)?;
    let (not_after, _) = take_time(validity)?;
    Some(Facts { common_name: common_name(subject), not_before, not_after })
}

/// Returns the contents of the value at the front if it has this tag, and the bytes after it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, short], rest) = bytes.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn common_name(subject: &[u8]) -> Option<String> {
    let (part, rest) = take(subject, SET)?;
    let (pair, others) = take(part, SEQUENCE)?;
    let (kind, value) = take(pair, OBJECT_ID)?;
    if kind != COMMON_NAME || !rest.is_empty() || !others.is_empty() {
        return None;
    }
    let (text, _) = take(value, UTF8_STRING).or_else(|| take(value, PRINTABLE_STRING))?;
    String::from_utf8(text.to_vec()).ok()
}

fn take_time(bytes: &[u8]) -> Option<(UnixTime, &[u8])> {
    let (digits, rest, is_short) = match take(bytes, UTC_TIME) {
        Some((digits, rest)) => (digits, rest, true),
        None => {
            let (digits, rest) = take(bytes, GENERALIZED_TIME)?;
            (digits, rest, false)
        }
    };
    Some((time(digits, is_short)?, rest))
}

/// Parses `YYMMDDHHMMSSZ`, or the same with four digits of the year.
fn time(text: &[u8], is_short: bool) -> Option<UnixTime> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = digits.split_at_checked(if is_short { 2 } else { 4 })?;
    let year = number(year)?;
    let year = match is_short {
        true if year < 50 => 2000 + year,
        true => 1900 + year,
        false => year,
    };
    if rest.len() != 10 {
        return None;
    }
    let mut parts = rest.chunks(2).map(number);
    let mut part =
        |least: i64, most: i64| parts.next().flatten().filter(|part| (least..=most).contains(part));
    let (month, day) = (part(1, 12)?, part(1, 31)?);
    let (hour, minute, second) = (part(0, 23)?, part(0, 59)?, part(0, 60)?);
    let secs = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    // A time before the epoch counts as the epoch.
    let secs = u64::try_from(secs).unwrap_or(0);
    Some(UnixTime::since_unix_epoch(Duration::from_secs(secs)))
}

fn number(digits: &[u8]) -> Option<i64> {
    let digit = |digit: &u8| char::from(*digit).to_digit(10).map(i64::from);
    digits.iter().try_fold(0, |number, next| Some(number * 10 + digit(next)?))
}

/// Returns the days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March here, so that a leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn made(params: &CertificateParams) -> Vec<u8> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn named(parts: &[(DnType, &str)]) -> CertificateParams {
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in parts {
            params.distinguished_name.push(kind.clone(), *text);
        }
        params
    }

    #[test]
    fn names_and_dates_are_read() {
        let mut params = named(&[(DnType::CommonName, "Grün")]);
        for (year, month, day, secs) in [
            (1970, 1, 1, 0),
            (1999, 12, 31, 946_598_400),
            (2000, 2, 29, 951_782_400),
            (2026, 11, 27, 1_795_737_600),
            (2049, 12, 31, 2_524_521_600),
            (2100, 3, 1, 4_107_542_400),
        ] {
            params.not_before = date_time_ymd(1970, 1, 1);
            params.not_after = date_time_ymd(year, month, day);
            let read = facts(&made(&params)).unwrap();
            assert_eq!(read.not_after.as_secs(), secs, "{year}-{month}-{day}");
            assert_eq!(read.not_before.as_secs(), 0);
            assert_eq!(read.common_name.as_deref(), Some("Grün"));
        }
    }

    #[test]
    fn a_name_of_several_parts_is_no_common_name() {
        let two = [(DnType::CommonName, "a"), (DnType::OrganizationName, "b")];
        assert_eq!(facts(&made(&named(&two))).unwrap().common_name, None);
        let other = [(DnType::OrganizationName, "b")];
        assert_eq!(facts(&made(&named(&other))).unwrap().common_name, None);
        assert_eq!(facts(&made(&named(&[]))).unwrap().common_name, None);
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let whole = made(&named(&[(DnType::CommonName, "a")]));
        for cut in 0..whole.len() {
            let _ = facts(&whole[..cut]);
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let _ = facts(&bytes);
            }
        }
        assert_eq!(facts(b""), None);
        assert_eq!(facts(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
