//! The text formats of Prometheus: OpenMetrics, and the older one, which every program reads.

use http::HeaderMap;
use http::header::ACCEPT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    OpenMetrics,
    Classic,
}

impl Form {
    /// Returns the format that a client asks for. OpenMetrics is only for clients that ask for it:
    /// others would not know its content type.
    pub fn asked(headers: &HeaderMap) -> Form {
        let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if accepted.any(|text| text.contains("application/openmetrics-text")) {
            Form::OpenMetrics
        } else {
            Form::Classic
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Writes a text of OpenMetrics in this format.
    pub fn write(self, text: String) -> String {
        match self {
            Form::OpenMetrics => text,
            Form::Classic => classic(&text),
        }
    }
}

/// Converts to the older format, in which descriptions have the names of samples: those of counters
/// end with `_total`.
fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 4096);
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, said)) = help.take_if(|(of, _)| *of == name) {
                out.push_str(&format!("# HELP {name}{total} {said}\n"));
            }
            out.push_str(&format!("# TYPE {name}{total} {kind}\n"));
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn descriptions_have_the_names_of_samples() {
        let text = "# HELP cairn_ops Operations.\n# TYPE cairn_ops counter\n\
            cairn_ops_total{a=\"b\"} 1\n# HELP cairn_open Open ones.\n# TYPE cairn_open gauge\n\
            # UNIT cairn_open seconds\ncairn_open 2\n# EOF\n";
        let expected = "# HELP cairn_ops_total Operations.\n# TYPE cairn_ops_total counter\n\
            cairn_ops_total{a=\"b\"} 1\n# HELP cairn_open Open ones.\n# TYPE cairn_open gauge\n\
            cairn_open 2\n";
        assert_eq!(Form::Classic.write(text.to_owned()), expected);
        assert_eq!(Form::OpenMetrics.write(text.to_owned()), text);
    }

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5,*/*";
        for (accept, form) in [
            (None, Form::Classic),
            (Some("*/*"), Form::Classic),
            (Some("text/plain"), Form::Classic),
            (Some(prometheus), Form::OpenMetrics),
        ] {
            let values = accept.map(|accept| (ACCEPT, HeaderValue::from_static(accept)));
            assert_eq!(Form::asked(&values.into_iter().collect()), form, "{accept:?}");
        }
    }
}
