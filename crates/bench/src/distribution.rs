//! Known distributions, as fixed sequences of numbers: of delays, of sizes.

/// Distribution of numbers (nanoseconds, bytes).
#[derive(Clone, PartialEq, Debug)]
pub enum Distribution {
    /// All numbers from the first to the second, with equal probability.
    Uniform(u64, u64),
    /// Exponential with this mean; cut off where one number in 10,000 would be larger.
    Exponential(u64),
    /// Numbers with their weights.
    Mixture(Vec<(u64, f64)>),
}

/// Fractional part of the golden ratio: its multiples fill the unit interval evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
const EXPONENTIAL_CUT: f64 = 0.9999;

impl Distribution {
    /// Parses `20ms`, `10ms..50ms`, `exp:20ms` or `10ms*90+200ms*10` (values with weights); `unit`
    /// parses a value.
    pub fn parse(
        text: &str,
        unit: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<Distribution, String> {
        if let Some(mean) = text.strip_prefix("exp:") {
            return Ok(Distribution::Exponential(unit(mean)?));
        }
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (unit(low)?, unit(high)?);
            if low > high {
                return Err(format!("{text:?}: write the smaller one first"));
            }
            return Ok(Distribution::Uniform(low, high));
        }
        let parts = text.split('+').map(|part| {
            let (value, weight) = part.split_once('*').unwrap_or((part, "1"));
            let wrong = || format!("{weight:?} is not a weight: write VALUE*WEIGHT+VALUE*WEIGHT");
            let weight: f64 = weight.trim().parse().map_err(|_| wrong())?;
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(wrong());
            }
            Ok((unit(value.trim())?, weight))
        });
        Ok(Distribution::Mixture(parts.collect::<Result<_, _>>()?))
    }

    /// Returns the number at a quantile of 0 to 1.
    pub fn at(&self, quantile: f64) -> u64 {
        match self {
            Distribution::Uniform(low, high) => low + (quantile * (high - low) as f64) as u64,
            Distribution::Exponential(mean) => {
                (-(1.0 - quantile.min(EXPONENTIAL_CUT)).ln() * *mean as f64) as u64
            }
            Distribution::Mixture(parts) => {
                let mut left = quantile * parts.iter().map(|(_, weight)| weight).sum::<f64>();
                for (value, weight) in parts {
                    left -= weight;
                    if left <= 0.0 {
                        return *value;
                    }
                }
                parts.last().map_or(0, |(value, _)| *value)
            }
        }
    }

    /// Returns the number at a position of the sequence: always the same.
    pub fn nth(&self, place: u64) -> u64 {
        self.at((0.5 + place as f64 * GOLDEN).fract())
    }

    pub fn max(&self) -> u64 {
        match self {
            Distribution::Mixture(parts) => parts.iter().map(|(value, _)| *value).max(),
            _ => Some(self.at(1.0)),
        }
        .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::size;

    fn sorted(text: &str) -> Vec<u64> {
        let distribution = Distribution::parse(text, size).unwrap();
        let mut drawn: Vec<u64> = (0..10_000).map(|place| distribution.nth(place)).collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn sequences_have_the_quantiles_of_their_distribution() {
        for (text, wanted) in [
            ("20", [20, 20, 20]),
            ("1000..3000", [2000, 2800, 2980]),
            ("exp:1000", [693, 2302, 4605]),
            ("10*60+20*35+500*5", [10, 20, 500]),
        ] {
            let drawn = sorted(text);
            for (permille, wanted) in [500, 900, 990].into_iter().zip(wanted) {
                let got = drawn[permille * 10] as f64;
                assert!((got / f64::from(wanted) - 1.0).abs() < 0.005, "{text} {permille} {got}");
            }
        }
    }

    #[test]
    fn senseless_ones_are_refused() {
        for text in ["", "5..1", "exp:", "1*0", "1*x", "1*2+", "x"] {
            assert!(Distribution::parse(text, size).is_err(), "{text}");
        }
    }
}
