//! The lines of the audit and of access logs.

use std::borrow::Cow;

use cairn_base::Error;
use serde::Serialize;

use crate::actor::Actor;
use crate::lines::LineLog;

/// Bytes of any one text in a record, at most.
const TEXT_BYTES: usize = 2048;

/// Bytes of all keys in a record, at most: written as JSON they may be six times as many.
const KEYS_BYTES: usize = 100 << 10;

/// The beginning of a text: as much of it as a record may have.
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default()
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Done,
    /// The caller may not, or its credentials are no good.
    Refused,
    /// It was not done, or not all of it.
    Failed,
    /// It was done, or it was not.
    #[default]
    Unknown,
}

impl AuditOutcome {
    pub fn of(error: &Error) -> AuditOutcome {
        match error {
            Error::Denied(_) => AuditOutcome::Refused,
            Error::Unavailable(_) | Error::Io(_) | Error::Corrupt { .. } => AuditOutcome::Unknown,
            _ => AuditOutcome::Failed,
        }
    }
}

/// A request that asks for a change, or was refused. `docs/audit.md` says what its fields are.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditRecord {
    pub time: String,
    pub door: &'static str,
    pub operation: Cow<'static, str>,
    pub outcome: AuditOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(flatten)]
    pub actor: Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Further keys, for which there is no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_keys: Option<usize>,
    /// The subject of the request, where that is neither a bucket nor a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl AuditRecord {
    fn cut_keys(&mut self) {
        let mut bytes = 0;
        let fits = |key: &&String| {
            bytes += key.len();
            bytes <= KEYS_BYTES
        };
        let fitting = self.keys.iter().take_while(fits).count();
        let more = self.keys.len() - fitting;
        self.keys.truncate(fitting);
        self.more_keys = (more > 0).then_some(more);
    }
}

/// A request of S3 or HTTP, and its reply.
#[derive(Debug, Default, Serialize)]
pub struct AccessRecord<'a> {
    pub time: String,
    pub door: &'static str,
    pub method: &'a str,
    pub path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<Cow<'a, str>>,
    /// None: the client went away before there was one.
    pub status: Option<u16>,
    /// Of the reply's body.
    pub bytes: u64,
    pub us: u64,
    #[serde(flatten)]
    pub actor: Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a str>,
}

impl LineLog {
    /// Adds a record, with the time and the name of its user.
    pub fn note(&self, mut record: AuditRecord) {
        record.cut_keys();
        record.time = self.time();
        self.name(&mut record.actor);
        self.write(&record);
    }

    /// The same of an access log.
    pub fn note_access(&self, mut record: AccessRecord<'_>) {
        record.time = self.time();
        self.name(&mut record.actor);
        self.write(&record);
    }
}

/// A record that is noted when this is dropped: with an unknown outcome, unless that was said.
#[derive(Debug)]
pub struct Noting {
    log: LineLog,
    record: AuditRecord,
    /// It asks for a change; otherwise it is recorded only if it is refused.
    is_change: bool,
}

impl Noting {
    pub fn new(log: LineLog, record: AuditRecord, is_change: bool) -> Noting {
        Noting { log, record, is_change }
    }

    pub fn end<T>(mut self, ended: &Result<T, Error>) {
        self.record.outcome = match ended {
            Ok(_) => AuditOutcome::Done,
            Err(error) => {
                self.record.reason = Some(why(error));
                AuditOutcome::of(error)
            }
        };
    }
}

/// A refusal in its words, and another error by its kind: its words may be of the client.
fn why(error: &Error) -> String {
    match error {
        Error::Denied(_) => cut(&error.to_string()).to_owned(),
        error => error.kind().to_owned(),
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        let is_refused = self.record.outcome == AuditOutcome::Refused;
        if is_refused || self.is_change {
            self.log.note(std::mem::take(&mut self.record));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use cairn_base::clock::RealClock;

    use super::*;
    use crate::LineQueue;

    #[test]
    fn a_record_of_many_keys_is_no_line_that_is_lost() {
        let queue = Arc::new(LineQueue::new("audit", "test"));
        let log = LineLog::new(
            Arc::new(RealClock::default()),
            Arc::new(|_| None),
            std::slice::from_ref(&queue),
        );
        let keys = vec!["\u{1}".repeat(1024); 1000];
        log.note(AuditRecord { keys, ..AuditRecord::default() });
        let line = queue.take(Duration::ZERO).unwrap().bytes;
        let record: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let (shown, more) = (record["keys"].as_array().unwrap().len(), &record["more_keys"]);
        assert_eq!((shown, more), (100, &900.into()));
    }
}
