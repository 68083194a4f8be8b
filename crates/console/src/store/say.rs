//! Spans of time and rates, as people read them.

use std::time::Duration;

use crate::words;

/// Shows a span: `850 µs`, `1.2 ms`, `3.4 s`, `5 min`, `3 h`, `12 days`.
pub fn span(time: Duration) -> String {
    let secs = time.as_secs_f64();
    match secs {
        _ if secs < 1e-3 => format!("{:.0} µs", secs * 1e6),
        _ if secs < 0.1 => format!("{:.1} ms", secs * 1e3),
        _ if secs < 0.9995 => format!("{:.0} ms", secs * 1e3),
        _ if secs < 99.95 => format!("{secs:.1} s"),
        _ if secs < 7200.0 => format!("{:.0} min", secs / 60.0),
        _ if secs < 172_800.0 => format!("{:.0} h", secs / 3600.0),
        _ => format!("{:.0} days", secs / 86_400.0),
    }
}

/// Shows a number of events per second: with one decimal if it is less than 10.
pub fn rate(a_second: f64) -> String {
    match a_second {
        _ if a_second <= 0.0 => "0".to_owned(),
        _ if a_second < 0.05 => "< 0.1".to_owned(),
        _ if a_second < 9.95 => format!("{a_second:.1}"),
        _ => words::count(a_second.round() as u64),
    }
}

/// Shows a rate, such as `1.5 MiB/s`.
pub fn bytes_rate(a_second: f64) -> String {
    format!("{}/s", words::size(a_second.max(0.0).round() as u64))
}

/// Shows a share of 0 to 1, such as `12 %`.
pub fn share(share: f64) -> String {
    match share {
        _ if share > 0.0 && share < 0.005 => "< 1 %".to_owned(),
        _ => format!("{:.0} %", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_rates_are_short() {
        for (micros, shown) in [
            (0, "0 µs"),
            (850, "850 µs"),
            (1_200, "1.2 ms"),
            (250_000, "250 ms"),
            (999_900, "1.0 s"),
            (61_000_000, "61.0 s"),
            (600_000_000, "10 min"),
            (10_800_000_000, "3 h"),
            (1_036_800_000_000, "12 days"),
        ] {
            assert_eq!(span(Duration::from_micros(micros)), shown);
        }
        let rates = [0.0, 0.01, 3.25, 12.4, 12_345.0].map(rate);
        assert_eq!(rates, ["0", "< 0.1", "3.2", "12", "12,345"]);
        assert_eq!([0.001, 0.0, 0.5, 1.0].map(share), ["< 1 %", "0 %", "50 %", "100 %"]);
        assert_eq!(bytes_rate(1536.0), "1.5 KiB/s");
    }
}
