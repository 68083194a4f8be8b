//! A number in the metrics, with or without labels.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// A number with its name and description.
#[derive(Clone, Debug)]
pub struct Number {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    value: Value,
    labels: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(u64),
    Seconds(f64),
}

/// Returns a present value.
pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Number {
    Number::new(name, help, false, Value::Whole(value))
}

/// Returns a number that only grows.
pub fn counter(name: &'static str, help: &'static str, value: u64) -> Number {
    Number::new(name, help, true, Value::Whole(value))
}

/// Returns a present time, in seconds.
pub fn gauge_seconds(name: &'static str, help: &'static str, value: Duration) -> Number {
    Number::new(name, help, false, Value::Seconds(value.as_secs_f64()))
}

/// Returns a time that only grows, in seconds.
pub fn counter_seconds(name: &'static str, help: &'static str, value: Duration) -> Number {
    Number::new(name, help, true, Value::Seconds(value.as_secs_f64()))
}

impl Number {
    fn new(name: &'static str, help: &'static str, is_counter: bool, value: Value) -> Number {
        Number { name, help, is_counter, value, labels: Vec::new() }
    }

    /// Adds a label. Numbers of one name must follow one another.
    pub fn of(mut self, label: &'static str, value: impl Into<String>) -> Number {
        self.labels.push((label, value.into()));
        self
    }

    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match (self.is_counter, self.value) {
            (true, Value::Whole(value)) => {
                metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
            }
            (true, Value::Seconds(value)) => {
                metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
            }
            (false, Value::Whole(value)) => metric.encode_gauge(&value),
            (false, Value::Seconds(value)) => metric.encode_gauge(&value),
        }
    }
}

#[derive(Debug)]
pub(super) struct Numbers(pub(super) Vec<Number>);

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for of_one in self.0.chunk_by(|one, next| one.name == next.name) {
            let Some(Number { name, help, is_counter, .. }) = of_one.first() else { continue };
            let kind = if *is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for number in of_one {
                if number.labels.is_empty() {
                    number.encode(&mut metric)?
                } else {
                    number.encode(&mut metric.encode_family(&number.labels)?)?
                }
            }
        }
        Ok(())
    }
}
