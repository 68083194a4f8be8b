//! Histograms of times, and numbers that summarize rounds.

use std::time::Duration;

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

/// Longest time; longer times count as this.
const LONGEST: Duration = Duration::from_secs(3600);
/// Percentiles from which a plot of a distribution is drawn.
const CURVE: [f64; 17] = [
    0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99,
    100.0,
];

/// Times, each exact to 0.1 %, or to 1 % if `coarse`.
#[derive(Clone)]
pub struct Histogram {
    nanos: Hdr<u64>,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram::with_digits(3)
    }

    /// Makes a histogram with a tenth of the memory.
    pub fn coarse() -> Histogram {
        Histogram::with_digits(2)
    }

    fn with_digits(digits: u8) -> Histogram {
        let nanos = Hdr::new_with_bounds(1, LONGEST.as_nanos() as u64, digits);
        Histogram { nanos: nanos.expect("bounds of a histogram") }
    }

    pub fn record(&mut self, time: Duration) {
        self.nanos.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn add(&mut self, other: &Histogram) {
        self.nanos.add(&other.nanos).expect("histograms of the same bounds");
    }

    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// Returns the microseconds at a percentile of 0 to 100.
    pub fn us_at(&self, percentile: f64) -> f64 {
        self.nanos.value_at_percentile(percentile) as f64 / 1e3
    }

    pub fn times(&self) -> Times {
        let curve = CURVE.map(|percentile| (percentile, self.us_at(percentile))).to_vec();
        Times {
            count: self.count(),
            mean_us: self.nanos.mean() / 1e3,
            p50_us: self.us_at(50.0),
            p90_us: self.us_at(90.0),
            p99_us: self.us_at(99.0),
            p999_us: self.us_at(99.9),
            max_us: self.nanos.max() as f64 / 1e3,
            curve_us: if self.count() == 0 { Vec::new() } else { curve },
        }
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

/// Statistics of a histogram, microseconds.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Percentiles and their times.
    pub curve_us: Vec<(f64, f64)>,
}

/// One number of several rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Summarizes numbers; none if there are none.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        let high = *numbers.get(middle)?;
        let median = match numbers.len() % 2 {
            0 => f64::midpoint(numbers[middle - 1], high),
            _ => high,
        };
        Some(Spread { median, min: numbers[0], max: numbers[numbers.len() - 1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_numbers() {
        let mut histogram = Histogram::new();
        for millis in 1..=1000 {
            histogram.record(Duration::from_millis(millis));
        }
        let times = histogram.times();
        let got = [times.p50_us, times.p90_us, times.p99_us, times.p999_us, times.max_us];
        for (got, wanted) in got.into_iter().zip([500e3, 900e3, 990e3, 999e3, 1000e3]) {
            assert!((got / wanted - 1.0).abs() < 0.002, "{got} {wanted}");
        }
        assert_eq!(times.count, 1000);
        assert_eq!(Histogram::new().times(), Times::default());
    }

    #[test]
    fn medians() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 2.0]), Some(Spread { median: 3.0, min: 2.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
