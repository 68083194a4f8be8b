//! Times on a command line, and the test whether a record came within them.

use cairn_base::Timestamp;
use cairn_logs::day;

/// Start of a line, which precedes the time at which its record arrived.
const RECEIVED: &[u8] = b"{\"received\":\"";

/// Records of a time: those that came at `since` or later, and before `until`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Range {
    /// Only records that arrived at this time or later: 2026-11-26, 2026-11-26T13:30:00Z, or 30m,
    /// 2h or 3d before now. All times are in UTC
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// Only records that arrived before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,
}

impl Range {
    /// Returns true if any part of a day is within the range.
    pub fn has_day(&self, day: &str) -> bool {
        let since = self.since.as_deref().and_then(|since| since.get(..day.len()));
        // A time before the start of a day is on the day before.
        let until = self.until.as_deref();
        since.is_none_or(|since| since <= day) && until.is_none_or(|until| day < until)
    }

    /// Returns true if the record of a line came within the range. If a line does not say when it
    /// came, only its day is known.
    pub fn has(&self, line: &[u8]) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let received =
            line.strip_prefix(RECEIVED).and_then(|rest| rest.split(|b| *b == b'"').next());
        // Times have a form in which their order is that of texts.
        let is_since = |at: &[u8]| self.since.as_ref().is_none_or(|since| since.as_bytes() <= at);
        let is_until = |at: &[u8]| self.until.as_ref().is_none_or(|until| at < until.as_bytes());
        received.is_none_or(|at| is_since(at) && is_until(at))
    }
}

fn time(text: &str) -> Result<String, String> {
    let (seconds, ns) = (now(), 1_000_000_000);
    parse(text, Timestamp(seconds.saturating_mul(ns)))
}

/// Returns the seconds since 1970.
fn now() -> i64 {
    use cairn_base::Clock;
    cairn_base::clock::RealClock::default().now().0 / 1_000_000_000
}

/// Returns a time in the form in which lines have it, or the start of such a time.
fn parse(text: &str, now: Timestamp) -> Result<String, String> {
    let bad = || "use 2026-11-26, 2026-11-26T13:30:00Z, 30m, 2h or 3d".to_owned();
    if let Some((number, unit)) = text.split_at_checked(text.len().saturating_sub(1))
        && let Ok(number) = number.parse::<u32>()
    {
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(bad()),
        };
        let before = i64::from(number) * seconds * 1_000_000_000;
        return Ok(day::rfc3339(Timestamp(now.0.saturating_sub(before))));
    }
    let (date, rest) = text.split_at_checked(10).ok_or_else(bad)?;
    day::parse(date).ok_or_else(bad)?;
    let rest = rest.strip_suffix('Z').unwrap_or(rest);
    let shape: String =
        rest.chars().map(|char| if char.is_ascii_digit() { '0' } else { char }).collect();
    let is_time = ["", "T00:00", "T00:00:00"].contains(&shape.as_str())
        || shape
            .strip_prefix("T00:00:00.")
            .is_some_and(|f| !f.is_empty() && f.bytes().all(|b| b == b'0'));
    if is_time { Ok(format!("{date}{rest}")) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(since: &str, until: &str) -> Range {
        let time = |text: &str| (!text.is_empty()).then(|| parse(text, Timestamp(0)).unwrap());
        Range { since: time(since), until: time(until) }
    }

    #[test]
    fn times_are_days_times_or_so_long_ago() {
        let now = Timestamp(1_795_699_917_000_000_000);
        for (text, time) in [
            ("2026-11-26", "2026-11-26"),
            ("2026-11-26T13:31Z", "2026-11-26T13:31"),
            ("2026-11-26T13:31:57.5", "2026-11-26T13:31:57.5"),
            ("2h", "2026-11-26T11:31:57.000000000Z"),
            ("3d", "2026-11-23T13:31:57.000000000Z"),
        ] {
            assert_eq!(parse(text, now).unwrap(), time);
        }
        for bad in
            ["", "x", "2026-11", "2026-02-30", "5", "5w", "-5m", "2026-11-26T", "2026-11-26 1"]
        {
            assert!(parse(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_record_is_of_a_time_if_it_came_then() {
        let line = b"{\"received\":\"2026-11-26T13:31:57.000000000Z\",\"line\":\"x\"}";
        for (since, until, is_there) in [
            ("", "", true),
            ("2026-11-26", "", true),
            ("2026-11-26T13:31:57Z", "2026-11-26T13:31:58Z", true),
            ("2026-11-26T13:31:58Z", "", false),
            ("", "2026-11-26T13:31", false),
            ("2026-11-27", "", false),
            ("", "2026-11-27", true),
        ] {
            assert_eq!(range(since, until).has(line), is_there, "{since} {until}");
        }
        assert!(range("2026-11-27", "").has(b"a line of any kind"));
    }

    #[test]
    fn days_are_looked_at_that_have_any_of_it() {
        let days = |since, until| {
            let range = range(since, until);
            let all = ["2026-11-25", "2026-11-26", "2026-11-27"];
            all.into_iter()
                .filter(|day| range.has_day(day))
                .map(|day| &day[8..])
                .collect::<String>()
        };
        assert_eq!(days("", ""), "252627");
        assert_eq!(days("2026-11-26T13:00Z", ""), "2627");
        assert_eq!(days("", "2026-11-26T13:00Z"), "2526");
        assert_eq!(days("", "2026-11-26"), "25");
        assert_eq!(days("2026-11-26", "2026-11-27"), "26");
    }
}
