//! The contents of `/metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// Samples of the text format of Prometheus, by name and labels as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Parses a text. Lines that are no samples are ignored.
    pub fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Metrics(lines.filter_map(line).collect())
    }

    /// Returns the sum of all samples of `name` whose labels include all of `labels`, such as
    /// `door="http"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.of(name)
            .filter(|(shown, _)| labels.iter().all(|label| shown.contains(label)))
            .map(|(_, value)| value)
            .sum()
    }

    /// Returns the values of a label of a name, each once, in order.
    pub fn labels(&self, name: &str, label: &str) -> Vec<String> {
        let starts = ['{', ','].map(|before| format!("{before}{label}=\""));
        let values = self.of(name).filter_map(|(shown, _)| {
            let (_, rest) = starts.iter().find_map(|start| shown.split_once(start))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        });
        values.collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// Parses a mount's report on itself (`cairn stats`): requests of the kernel count as those of
    /// a door, with their stages.
    pub fn of_mount(text: &str) -> Metrics {
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(verb) = words.next() else { continue };
            let mut number = || words.next()?.parse::<u64>().ok().map(|number| number as f64);
            // A line of an operation has its count, mean, two percentiles, and stages with theirs.
            let (Some(count), Some(mean_us), Some(_), _) = (number(), number(), number(), number())
            else {
                continue;
            };
            let labels = format!("{{door=\"fuse\",verb=\"{verb}\"}}");
            all.insert(format!("cairn_requests_total{labels}"), count);
            all.insert(format!("cairn_request_seconds_sum{labels}"), count * mean_us / 1e6);
            while let (Some(stage), Some(mean_us)) = (words.next(), words.next()) {
                let Ok(mean_us) = mean_us.parse::<f64>() else { break };
                let key = format!("cairn_stage_seconds_sum{{door=\"fuse\",stage=\"{stage}\"}}");
                *all.entry(key).or_insert(0.0) += count * mean_us / 1e6;
            }
        }
        Metrics(all)
    }

    /// Returns labels and values of all samples of a name.
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let all = self.0.range(name.to_owned()..);
        all.take_while(move |(key, _)| key.starts_with(name)).filter_map(move |(key, value)| {
            let labels = &key[name.len()..];
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }

    /// Returns the growth since `before`; a negative number means that the process was restarted.
    pub fn since(&self, before: &Metrics, name: &str, labels: &[&str]) -> f64 {
        (self.sum(name, labels) - before.sum(name, labels)).max(0.0)
    }
}

fn line(line: &str) -> Option<(String, f64)> {
    let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
    let (key, rest) = line.split_at_checked(end)?;
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then(|| (key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "# HELP a b\n\
        cairn_requests_total{door=\"http\",verb=\"get\",status=\"2xx\"} 3\n\
        cairn_requests_total{door=\"s3\",verb=\"GetObject\",status=\"2xx\"} 4\n\
        cairn_requests 9\n\
        cairn_cache_hits_total 17\n\
        nonsense\n\
        cairn_stage_seconds_sum{door=\"s3\",stage=\"a } b\"} 0.25\n\
        # EOF\n";

    #[test]
    fn samples_are_summed_by_name_and_labels() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.sum("cairn_requests_total", &[]), 7.0);
        assert_eq!(metrics.sum("cairn_requests_total", &["door=\"s3\""]), 4.0);
        assert_eq!(metrics.sum("cairn_requests", &[]), 9.0);
        assert_eq!(metrics.sum("cairn_cache_hits_total", &[]), 17.0);
        assert_eq!(metrics.sum("cairn_stage_seconds_sum", &["door=\"s3\""]), 0.25);
        assert_eq!(metrics.sum("cairn_cache", &[]), 0.0);
    }

    #[test]
    fn labels_have_values() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.labels("cairn_requests_total", "door"), ["http", "s3"]);
        assert_eq!(metrics.labels("cairn_requests_total", "status"), ["2xx"]);
        assert!(metrics.labels("cairn_requests_total", "or").is_empty());
        assert!(metrics.labels("cairn_requests", "door").is_empty());
    }

    #[test]
    fn a_mount_is_a_door() {
        let text = "operation count mean_us p50_us p99_us\nread 20 500 512 1024 read 300.5 peer 20.0\n\
                    open 5 100 128 256 peer 40.0\nbytes_read 70000\n";
        let metrics = Metrics::of_mount(text);
        assert_eq!(metrics.sum("cairn_requests_total", &["verb=\"read\""]), 20.0);
        assert_eq!(metrics.sum("cairn_requests_total", &["door=\"fuse\""]), 25.0);
        assert!((metrics.sum("cairn_request_seconds_sum", &[]) - 0.0105).abs() < 1e-9);
        let stage = |name| metrics.sum("cairn_stage_seconds_sum", &[name]);
        assert!((stage("stage=\"read\"") - 0.00601).abs() < 1e-9);
        assert!((stage("stage=\"peer\"") - 0.0006).abs() < 1e-9);
    }

    #[test]
    fn a_server_that_was_started_again_has_done_nothing() {
        let (later, none) = (Metrics::parse(TEXT), Metrics::default());
        assert_eq!(later.since(&none, "cairn_cache_hits_total", &[]), 17.0);
        assert_eq!(none.since(&later, "cairn_cache_hits_total", &[]), 0.0);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "(\\PC|\n|\\{|\\}| |1){0,80}") {
            let _ = (Metrics::parse(&text), Metrics::of_mount(&text));
            let _ = Metrics::parse(&text).labels("1", "");
        }
    }
}
