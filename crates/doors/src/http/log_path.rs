//! The paths to which shippers of logs send requests, by protocol.

use std::borrow::Cow;

use http::Method;

/// The meaning of a path that is not one of Cairn's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogPath<'a> {
    /// A push of Loki.
    Loki,
    /// `_bulk` of Elasticsearch, with the index of the path.
    Bulk(Cow<'a, str>),
    /// Logs of OpenTelemetry.
    Otlp,
    /// Entries of `systemd-journal-upload`.
    Journal,
    /// A question that clients of Elasticsearch ask before they send.
    Probe(Probe),
}

/// The questions of clients of Elasticsearch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    Version,
    License,
    Health,
    /// The health, as text.
    HealthText,
    /// A question whether a template, a policy or the like exists.
    Present,
}

/// Paths below which templates, policies and the like are.
const PRESENT: [&str; 5] =
    ["_index_template", "_template", "_component_template", "_ilm/policy", "_data_stream"];

/// The path of logs of OpenTelemetry.
pub const OTLP: &str = "/v1/logs";

impl<'a> LogPath<'a> {
    /// Returns whether a request with this method brings records.
    pub fn is_push(&self, method: &Method) -> bool {
        match self {
            LogPath::Probe(_) => false,
            // Some clients of Elasticsearch use PUT.
            LogPath::Bulk(_) => matches!(*method, Method::POST | Method::PUT),
            _ => *method == Method::POST,
        }
    }

    /// Reads a path. `decode` removes percent-encoding.
    ///
    /// # Errors
    /// Same errors as `decode`.
    pub fn parse<E>(
        path: &'a str,
        decode: impl FnOnce(&'a str) -> Result<Cow<'a, str>, E>,
    ) -> Result<Option<LogPath<'a>>, E> {
        Ok(Some(match path {
            "/loki/api/v1/push" => LogPath::Loki,
            OTLP => LogPath::Otlp,
            "/upload" => LogPath::Journal,
            "/_bulk" => LogPath::Bulk(Cow::Borrowed("")),
            "/" => LogPath::Probe(Probe::Version),
            "/_license" | "/_xpack" => LogPath::Probe(Probe::License),
            "/_cluster/health" => LogPath::Probe(Probe::Health),
            "/_cat/health" => LogPath::Probe(Probe::HealthText),
            _ => {
                let rest = path.strip_prefix('/').unwrap_or_default();
                let is_of = |kind: &&str| {
                    let name = rest.strip_prefix(*kind).and_then(|rest| rest.strip_prefix('/'));
                    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
                };
                if PRESENT.iter().any(is_of) {
                    return Ok(Some(LogPath::Probe(Probe::Present)));
                }
                match rest.split_once('/') {
                    Some((index, "_bulk")) if !index.is_empty() => LogPath::Bulk(decode(index)?),
                    _ => return Ok(None),
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let bulk = |index: &'static str| Some(LogPath::Bulk(index.into()));
        let present = Some(LogPath::Probe(Probe::Present));
        for (path, expected) in [
            ("/loki/api/v1/push", Some(LogPath::Loki)),
            ("/_bulk", bulk("")),
            ("/nginx/_bulk", bulk("nginx")),
            ("/a/b/_bulk", None),
            ("//_bulk", None),
            ("/", Some(LogPath::Probe(Probe::Version))),
            ("/_index_template/filebeat-8", present.clone()),
            ("/_ilm/policy/filebeat", present),
            ("/_index_template/", None),
            ("/_index_template/a/b", None),
            ("/nginx", None),
            ("", None),
        ] {
            let parsed = LogPath::parse(path, |text| Ok::<_, ()>(text.into()));
            assert_eq!(parsed.unwrap(), expected, "{path}");
        }
    }
}
