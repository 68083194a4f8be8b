//! Events of a server (`text/event-stream`).

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// Kind of the event; empty for a line.
    pub kind: String,
    pub data: Option<String>,
    pub id: Option<String>,
}

/// Assembles events from lines.
#[derive(Default)]
pub struct Events {
    next: Event,
}

impl Events {
    /// Takes a line without its end. Returns the event that ends with it.
    pub fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.next);
            return (event != Event::default()).then_some(event);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.next.kind = value.to_owned(),
            "id" => self.next.id = Some(value.to_owned()),
            "data" => match &mut self.next.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.next.data = Some(value.to_owned()),
            },
            // A comment, or the time to wait.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_with_an_empty_line() {
        let text = "retry: 1000\n\nid: 7\n\n:\n\nid: 9\ndata: a\ndata:  b\n\nevent: end\ndata: {}\n\nid: 1";
        let mut events = Events::default();
        let all: Vec<Event> = text.lines().filter_map(|line| events.line(line)).collect();
        let event = |kind: &str, id: Option<&str>, data: Option<&str>| Event {
            kind: kind.to_owned(),
            id: id.map(str::to_owned),
            data: data.map(str::to_owned),
        };
        let expected = [
            event("", Some("7"), None),
            event("", Some("9"), Some("a\n b")),
            event("end", None, Some("{}")),
        ];
        assert_eq!(all, expected);
    }
}
