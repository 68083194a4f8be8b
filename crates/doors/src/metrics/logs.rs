//! Records of logs that came, and what became of them.

use std::fmt;
use std::sync::Arc;

use cairn_logs::Counts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

#[derive(Debug)]
pub(super) struct Records(pub(super) Vec<Arc<Counts>>);

impl Collector for Records {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Records of logs, by protocol and by what became of them";
        let counter = MetricType::Counter;
        let mut metric = encoder.encode_descriptor("log_records", help, None, counter)?;
        for (protocol, outcome, count) in self.0.iter().flat_map(|counts| counts.read()) {
            metric
                .encode_family(&[("protocol", protocol), ("outcome", outcome)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}
