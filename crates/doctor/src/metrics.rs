//! What `/metrics` says.

use std::collections::BTreeMap;

/// Samples of the text format of Prometheus, by name and labels as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Lines that are no samples are passed over.
    pub fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Metrics(lines.filter_map(line).collect())
    }

    /// The sum of all samples of `name` whose labels have all of `labels`, as `door="http"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.of(name)
            .filter(|(shown, _)| labels.iter().all(|label| shown.contains(label)))
            .map(|(_, value)| value)
            .sum()
    }

    /// Labels and values of all samples of a name.
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let all = self.0.range(name.to_owned()..);
        all.take_while(move |(key, _)| key.starts_with(name)).filter_map(move |(key, value)| {
            let labels = &key[name.len()..];
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }

    /// What was added since `before`; less than nothing means that it was started again.
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
    fn a_server_that_was_started_again_has_done_nothing() {
        let (later, none) = (Metrics::parse(TEXT), Metrics::default());
        assert_eq!(later.since(&none, "cairn_cache_hits_total", &[]), 17.0);
        assert_eq!(none.since(&later, "cairn_cache_hits_total", &[]), 0.0);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "(\\PC|\n|\\{|\\}| |1){0,80}") {
            let _ = Metrics::parse(&text);
        }
    }
}
