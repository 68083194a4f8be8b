//! `cairn bench rate`: an open loop, at rising rates of requests.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::TlsConnector;

use crate::client::Target;
use crate::closed_loop::{Asking, Client, load_and_remove};
use crate::error::{Error, Result};
use crate::load::{Pace, Plan, Sample};
use crate::report::{Axis, Finding, Key, NamedTarget};
use crate::session::{Output, Session};
use crate::values;

/// Share to which a search narrows the rate before it ends.
const CLOSE_ENOUGH: f64 = 0.05;
/// Share of the replies that may be missing at a rate that is met.
const MISSING: f64 = 0.01;

/// Requests at a rate, whether or not they are answered, and at a higher one
///
/// An open loop: requests are due by a plan, and the time of each counts from when it was due, not
/// from when it could be sent. So a server that stalls is seen as those would see it who had to
/// wait. With --target it looks for the highest rate at which the target is met.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench rate http://127.0.0.1:8080/storage/photos/cat.jpg --rates 1000,2000,4000
  cairn bench rate http://10.0.0.1/x --from 1000 --to 64000 --target p99=20ms --html ramp.html
  cairn bench rate http://10.0.0.1/x --rates 5000 --compare nginx=http://10.0.0.2/x")]
pub struct RateArgs {
    #[command(flatten)]
    asking: Asking,
    /// Rates to measure one after another, requests a second
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::rate)]
    #[arg(conflicts_with_all = ["from", "to", "factor"])]
    rates: Vec<f64>,
    /// The first rate of a ramp, requests a second
    #[arg(long, value_name = "RATE", default_value = "100", value_parser = values::rate)]
    from: f64,
    /// The last rate of a ramp, requests a second
    #[arg(long, value_name = "RATE", default_value = "12800", value_parser = values::rate)]
    to: f64,
    /// The factor from one rate of a ramp to the next
    #[arg(long, value_name = "FACTOR", default_value = "2", value_parser = factor)]
    factor: f64,
    /// Find the highest rate at which a percentile is at most this, such as p99=20ms
    #[arg(long, value_name = "PERCENTILE=TIME", value_parser = goal)]
    target: Option<Goal>,
    /// Duration of each rate, such as 10s
    #[arg(short, long, value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = values::some_duration)]
    duration: Duration,
    /// Most connections in use; a request that finds none free is late
    #[arg(long, value_name = "N", default_value = "128", value_parser = values::count)]
    connections: usize,
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    output: Output,
}

/// A percentile and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub percentile: f64,
    pub time: Duration,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.05..=100.0).contains(&factor) => Ok(factor),
        _ => Err(format!("{text:?} is not a factor from 1.05 to 100")),
    }
}

fn goal(text: &str) -> Result<Goal, String> {
    let wrong = || format!("{text:?} is no target: write it as in p99=20ms");
    let (name, time) = text.split_once('=').ok_or_else(wrong)?;
    let digits = name.strip_prefix('p').ok_or_else(wrong)?;
    // Both p999 and p99.9 are 99.9.
    let (whole, rest) = digits.split_at_checked(2).unwrap_or((digits, ""));
    let percentile = format!("{whole}.{}", rest.trim_start_matches('.'));
    let percentile = percentile.trim_end_matches('.').parse().map_err(|_| wrong())?;
    Ok(Goal { percentile, time: values::some_duration(time)? })
}

impl Goal {
    /// Returns true if a load at a rate met the goal: in time, and all of it.
    pub fn is_met(&self, rate: f64, sample: &Sample) -> bool {
        let planned = rate * sample.seconds;
        let tally = &sample.tally;
        let successes = tally.statuses.iter().filter(|(status, _)| (200..400).contains(*status));
        let successes: u64 = successes.map(|(_, count)| count).sum();
        let answered = successes as f64 >= planned * (1.0 - MISSING);
        let in_time = tally.latency.us_at(self.percentile) <= self.time.as_secs_f64() * 1e6;
        sample.broken.is_none() && answered && in_time
    }
}

pub fn run(args: &RateArgs) -> Result<()> {
    let connector = args.client.connector()?;
    let rates = args.steps()?;
    let targets = args.asking.targets()?;
    for (_, target) in &targets {
        args.asking.check(&args.client, &connector, target)?;
    }
    let shown = targets.iter().map(|(name, target)| (name.clone(), target.to_string()));
    let shown = shown.map(|(name, target)| NamedTarget { name, target }).collect();
    let mut session = Session::begin("rate", shown, &args.output)?;
    session.expect((rates.len() * targets.len()) as u64);
    let mut over: Vec<&str> = Vec::new();
    'ramp: for &rate in &rates {
        for (name, target) in &targets {
            if over.contains(&name.as_str()) {
                continue;
            }
            let Some(is_met) = args.step(&mut session, &connector, name, target, rate)? else {
                break 'ramp;
            };
            if !is_met {
                over.push(name);
            }
        }
    }
    if let Some(goal) = args.target {
        for (name, target) in &targets {
            let value = args.search(&mut session, &connector, name, target, &rates)?;
            if session.is_over() {
                break;
            }
            let percentile = goal.percentile;
            let what = format!("the highest rate with p{percentile} of at most {:?}", goal.time);
            session.found(Finding { target: name.clone(), what, value });
        }
    }
    session.end()
}

impl RateArgs {
    fn steps(&self) -> Result<Vec<f64>> {
        if !self.rates.is_empty() {
            let mut rates = self.rates.clone();
            rates.sort_by(f64::total_cmp);
            rates.dedup();
            return Ok(rates);
        }
        if self.from > self.to {
            return Err(Error::usage("--from is above --to: write the lower rate first"));
        }
        let mut rates = vec![self.from];
        while let Some(&last) = rates.last()
            && last < self.to
        {
            rates.push((last * self.factor).min(self.to));
        }
        Ok(rates)
    }

    fn key(&self, name: &str, rate: f64) -> Key {
        Key {
            target: name.to_owned(),
            what: format!("{} at a rate", self.asking.method()),
            axis: Axis { name: "rate".to_owned(), value: rate },
        }
    }

    /// Runs one rate. Returns whether it met the target; without a target, whether half of it was
    /// answered. None if the run is over.
    fn step(
        &self,
        session: &mut Session,
        connector: &TlsConnector,
        name: &str,
        target: &Target,
        rate: f64,
    ) -> Result<Option<bool>> {
        let plan = Plan {
            endpoints: vec![target.clone()],
            connector: connector.clone(),
            work: Arc::new(self.asking.work(target, true)?),
            connections: self.connections,
            keep_alive: true,
            pace: Pace::Open { rate, duration: self.duration },
            timeout: self.client.timeout,
            threads: self.client.threads(),
            server: self.client.pid.clone(),
        };
        let key = self.key(name, rate);
        if !session.measure(key.clone(), &mut || load_and_remove(&self.asking, &plan)) {
            return Ok(None);
        }
        let Some(sample) = session.latest(&key) else { return Ok(None) };
        Ok(Some(match self.target {
            Some(goal) => goal.is_met(rate, sample),
            None => sample.rate() >= rate * 0.5,
        }))
    }

    /// Returns the highest rate that meets the target, between the last rate of the ramp that did
    /// and the first that did not.
    fn search(
        &self,
        session: &mut Session,
        connector: &TlsConnector,
        name: &str,
        target: &Target,
        rates: &[f64],
    ) -> Result<Option<f64>> {
        let Some(goal) = self.target else { return Ok(None) };
        let met = |session: &Session, rate| {
            let sample = session.latest(&self.key(name, rate))?;
            Some(goal.is_met(rate, sample))
        };
        let missed = rates.iter().position(|rate| met(session, *rate) != Some(true));
        let mut high = match missed {
            Some(0) => return Ok(None),
            // All rates were met.
            None => return Ok(rates.last().copied()),
            Some(number) => rates[number],
        };
        let mut low = rates[missed.unwrap_or(1) - 1];
        while !session.is_over() && high - low > low * CLOSE_ENOUGH {
            let middle = f64::midpoint(low, high).round();
            session.expect(1);
            match self.step(session, connector, name, target, middle)? {
                Some(true) => low = middle,
                Some(false) => high = middle,
                None => break,
            }
        }
        Ok(Some(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        for (text, percentile) in [("p50", 50.0), ("p99", 99.0), ("p999", 99.9), ("p99.9", 99.9)] {
            let goal = goal(&format!("{text}=20ms")).unwrap();
            assert_eq!(goal, Goal { percentile, time: Duration::from_millis(20) }, "{text}");
        }
        for text in ["", "p99", "99=1s", "p=1s", "p99=0s", "p99=x", "px=1s"] {
            assert!(goal(text).is_err(), "{text}");
        }
    }
}
