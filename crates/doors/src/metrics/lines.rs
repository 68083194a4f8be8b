//! Lines of the audit and of other logs on their way to sinks, and lines that this process logged.

use std::fmt;
use std::sync::Arc;

use cairn_audit::{LineQueue, levels};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

#[derive(Debug)]
pub(super) struct Lines(pub(super) Vec<Arc<LineQueue>>);

impl Collector for Lines {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Lines of the audit and of other logs, by sink and by what became of them";
        let counter = MetricType::Counter;
        let mut metric = encoder.encode_descriptor("sink_lines", help, None, counter)?;
        for queue in &self.0 {
            let counts = queue.counts();
            for (outcome, count) in [("written", counts.written), ("lost", counts.lost)] {
                metric
                    .encode_family(&[
                        ("log", queue.log),
                        ("sink", queue.sink),
                        ("outcome", outcome),
                    ])?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let help = "Lines that this process has logged, by crate and level";
        let mut metric = encoder.encode_descriptor("logged_lines", help, None, counter)?;
        for ((source, level), count) in levels::read() {
            metric
                .encode_family(&[("source", source), ("level", level)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}
