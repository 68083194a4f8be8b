//! Values on command lines: sizes, times, counts.

use std::time::Duration;

/// Largest value of `--concurrency` and similar options.
pub const COUNT_MAX: usize = 65_536;

/// Splits `12.5ms` into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text.get(..at)?.parse().ok()?;
    number.is_finite().then_some((number, text.get(at..)?.trim()))
}

/// Parses a number of bytes: `430`, `155k`, `1m`, `10GiB`. Units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: write bytes, or as in 155k, 1m, 10g");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number * (1_u64 << shift) as f64;
    if bytes > (1_u64 << 52) as f64 { Err(wrong()) } else { Ok(bytes as u64) }
}

/// Parses a length of time: `100us`, `20ms`, `2s`, `1m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: write it as in 500ms, 2s, 1m");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Parses a [`duration`] that must not be zero.
pub fn some_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than nothing: for example 2s".to_owned()),
        some => Ok(some),
    }
}

/// Parses one of a list of counts.
pub fn count(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(number) if (1..=COUNT_MAX).contains(&number) => Ok(number),
        _ => {
            Err(format!("{text:?} is not a count from 1 to {COUNT_MAX}: write a list as in 1,2,4"))
        }
    }
}

/// Parses one of a list of rates, per second.
pub fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(number) if number > 0.0 && number <= 1e7 => Ok(number),
        _ => Err(format!(
            "{text:?} is not a rate above 0 and up to 10000000: write a list as in 100,200"
        )),
    }
}

pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?}: write on, off, or on,off")),
    }
}

/// Shows a number of bytes without loss, if possible in the unit in which it was written.
pub fn human_size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut number = bytes as f64;
    while number >= 1024.0 && unit + 1 < units.len() {
        number /= 1024.0;
        unit += 1;
    }
    if number.fract() == 0.0 {
        format!("{number} {}", units[unit])
    } else {
        format!("{number:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        let sizes = ["430", "155k", "1m", "1MiB", "1.5kb", "10g"].map(|text| size(text).unwrap());
        assert_eq!(sizes, [430, 158_720, 1 << 20, 1 << 20, 1536, 10 << 30]);
        let times = ["100us", "20ms", "2s", "1.5m"].map(|text| duration(text).unwrap().as_micros());
        assert_eq!(times, [100, 20_000, 2_000_000, 90_000_000]);
        for text in ["", "x", "5 parsecs", "-1", "1e3", "1..2"] {
            assert!(size(text).is_err() && duration(text).is_err(), "{text}");
        }
        assert!(some_duration("0s").is_err());
    }

    #[test]
    fn senseless_counts_are_refused() {
        assert_eq!(count("4"), Ok(4));
        for text in ["0", "x", "-1", "", "65537", "1.5"] {
            assert!(count(text).unwrap_err().contains("1,2,4"), "{text}");
        }
        assert!(rate("0").is_err() && rate("NaN").is_err() && rate("0.5").is_ok());
    }

    #[test]
    fn sizes_are_shown_as_they_were_written() {
        assert_eq!(human_size(155 << 10), "155 KiB");
        assert_eq!(human_size(430), "430 B");
        assert_eq!(human_size(1536), "1.5 KiB");
    }
}
