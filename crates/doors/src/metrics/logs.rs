//! Counters of records of logs, by outcome.

use std::fmt;
use std::sync::Arc;

use cairn_logs::follow::FollowCounts;
use cairn_logs::{Counts, LevelClass, levels};
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

/// Levels of records that were stored.
#[derive(Debug)]
pub(super) struct Levels;

impl Collector for Levels {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let counter = MetricType::Counter;
        let help = "Records of logs that were stored, by bucket, source and level";
        let mut metric = encoder.encode_descriptor("log_levels", help, None, counter)?;
        for ((bucket, source), counts) in levels::read() {
            let counts = LevelClass::NAMES.into_iter().zip(counts);
            for (level, count) in counts.filter(|(_, count)| *count > 0) {
                let labels =
                    [("bucket", bucket.as_str()), ("source", source.as_str()), ("level", level)];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Follows(pub(super) Vec<Arc<FollowCounts>>);

impl Collector for Follows {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let sum = |of: fn(&FollowCounts) -> u64| self.0.iter().map(|counts| of(counts)).sum();
        let followers: u64 = sum(FollowCounts::followers);
        let help = "Requests that follow an object or a source now";
        let mut gauge = encoder.encode_descriptor("followers", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&(followers as i64))?;
        let help = "Reads of objects that are followed: for all who follow, or for one";
        let counter = MetricType::Counter;
        let mut metric = encoder.encode_descriptor("follow_reads", help, None, counter)?;
        let reads: [(_, u64); 2] =
            [("all", sum(FollowCounts::shared_reads)), ("one", sum(FollowCounts::own_reads))];
        for (of, count) in reads {
            metric
                .encode_family(&[("for", of)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let help = "Bytes that were sent to those who follow";
        let mut metric = encoder.encode_descriptor("follow_bytes", help, None, counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&sum(FollowCounts::bytes), None)
    }
}
