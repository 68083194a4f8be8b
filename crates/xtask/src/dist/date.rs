//! Times in the forms for packages and images, in UTC.

struct Date {
    /// Days since 1970-01-01, which was a Thursday.
    days: u64,
    year: u64,
    /// Month, from 0.
    month: usize,
    day: u64,
}

const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Converts seconds to a date. The calendar repeats every 400 years. Years begin in March here, so
/// that the leap day is the last day.
fn date(time: u64) -> Date {
    let days = time / 86_400;
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    Date { days, year, month: ((month + 2) % 12) as usize, day }
}

fn clock(time: u64) -> String {
    let second = time % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// Returns a time in the form of mails and changelogs.
pub fn rfc5322(time: u64) -> String {
    let Date { days, year, month, day } = date(time);
    let (weekday, month) = (WEEK[(days % 7) as usize], MONTHS[month]);
    format!("{weekday}, {day:02} {month} {year} {} +0000", clock(time))
}

/// Returns a time in the form of RFC 3339.
pub fn rfc3339(time: u64) -> String {
    let Date { year, month, day, .. } = date(time);
    format!("{year}-{:02}-{day:02}T{}Z", month + 1, clock(time))
}
