//! Times in names of states, and in signatures.

/// Returns a time in the form `20261127T051500Z`.
pub fn compact_time(secs: u64) -> String {
    let time = httpdate_parts(secs);
    let (year, month, day, hour, minute, second) = time;
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

fn httpdate_parts(secs: u64) -> (i32, u8, u8, u8, u8, u8) {
    let at =
        i64::try_from(secs).ok().and_then(|s| time::OffsetDateTime::from_unix_timestamp(s).ok());
    let at = at.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    (at.year(), u8::from(at.month()), at.day(), at.hour(), at.minute(), at.second())
}
