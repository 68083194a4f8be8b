//! A number as it is shown, without labels.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// A number, its name and what it says.
#[derive(Debug)]
pub struct Number {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    value: u64,
}

/// A number of now.
pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Number {
    Number { name, help, is_counter: false, value }
}

/// A number that only grows.
pub fn counter(name: &'static str, help: &'static str, value: u64) -> Number {
    Number { name, help, is_counter: true, value }
}

#[derive(Debug)]
pub(super) struct Numbers(pub(super) Vec<Number>);

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for Number { name, help, is_counter, value } in &self.0 {
            let kind = if *is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            if *is_counter {
                metric.encode_counter::<NoLabelSet, _, u64>(value, None)?;
            } else {
                metric.encode_gauge(value)?;
            }
        }
        Ok(())
    }
}
