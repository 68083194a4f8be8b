//! Dates in the form of HTTP headers.

#![expect(clippy::disallowed_methods, reason = "doors are not simulated")]

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

use cairn_base::Timestamp;
use http::HeaderValue;

/// Number of seconds whose dates each thread remembers.
const SLOTS: usize = 64;
/// Time for which the clock is not read again, by a clock that does not jump.
const PRESENT_LASTS: Duration = Duration::from_millis(200);

/// Returns a date as headers have it. Times before 1970, which a mount may set, become the nearest
/// one; the last that there is lies in 2262.
pub fn http_date(time: Timestamp) -> HeaderValue {
    type DateCell = Cell<Option<(i64, HeaderValue)>>;
    thread_local! {
        static KNOWN: [DateCell; SLOTS] = const { [const { Cell::new(None) }; SLOTS] };
    }
    let secs = time.secs().max(0);
    KNOWN.with(|known| {
        let slot = &known[(secs % SLOTS as i64) as usize];
        let (known_secs, value) = match slot.take() {
            Some(entry) if entry.0 == secs => entry,
            _ => (secs, format_date(secs)),
        };
        slot.set(Some((known_secs, value.clone())));
        value
    })
}

/// Returns the value of `Last-Modified` for something that was changed at `time`. A time in the
/// future, which a clock or a mount may have set, becomes the present (RFC 9110, 8.8.2.1).
pub fn last_modified(time: Timestamp) -> HeaderValue {
    // Something changed a moment ago is not yet in the past of the remembered time.
    let now = if time <= present() { time } else { look_at_clock() };
    http_date(time.min(now))
}

/// Returns the value of `Date`. Unlike that of the HTTP library it follows a clock that is set
/// back.
pub fn date() -> HeaderValue {
    http_date(present())
}

thread_local! {
    static PRESENT: Cell<Option<(Instant, Timestamp)>> = const { Cell::new(None) };
}

/// Returns the wall time as of a moment ago.
fn present() -> Timestamp {
    match PRESENT.get() {
        Some((at, time)) if at.elapsed() < PRESENT_LASTS => time,
        _ => look_at_clock(),
    }
}

/// Returns the wall time, and remembers it.
fn look_at_clock() -> Timestamp {
    let time = Timestamp::from_system_time(SystemTime::now());
    PRESENT.set(Some((Instant::now(), time)));
    time
}

fn format_date(secs: i64) -> HeaderValue {
    let text = httpdate::fmt_http_date(Timestamp::from_secs(secs).to_system_time());
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_all_times() {
        let shown = |secs| http_date(Timestamp::from_secs(secs)).to_str().unwrap().to_owned();
        for _ in 0..2 {
            assert_eq!(shown(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
            assert_eq!(shown(784_111_777 + 64), "Sun, 06 Nov 1994 08:50:41 GMT");
        }
        assert_eq!(shown(-1), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(shown(i64::MIN), shown(0));
        assert_eq!(http_date(Timestamp(i64::MAX)), "Fri, 11 Apr 2262 23:47:16 GMT");
    }

    #[test]
    fn nothing_was_modified_in_the_future() {
        let future = Timestamp(present().0 + 7_200_000_000_000);
        assert_ne!(last_modified(future), http_date(future));
        let past = Timestamp::from_secs(784_111_777);
        assert_eq!(last_modified(past), http_date(past));
    }
    #[test]
    fn what_was_modified_a_moment_ago_has_its_own_date() {
        let now = look_at_clock();
        PRESENT.set(Some((Instant::now(), Timestamp(now.0 - 2_000_000_000))));
        assert_eq!(last_modified(now), http_date(now));
    }
}
