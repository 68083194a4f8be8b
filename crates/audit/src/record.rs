//! Lines of the audit and of access logs.

use std::borrow::Cow;
use std::net::IpAddr;

use cairn_base::{Error, Party};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::actor::Actor;
use crate::lines::LineLog;
use crate::refusals::MoreRefusals;

/// Bytes of any one text in a record, at most.
const TEXT_BYTES: usize = 2048;

/// Bytes of all keys in a record as written, at most: one key always fits. The others are counted,
/// and a digest can prove which they were.
const KEYS_BYTES: usize = 8 << 10;

/// Returns the start of a text: as much of it as a record may have.
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default()
}

/// Returns the length of a text in a line of JSON, with its quotes and a comma, in bytes.
fn written_bytes(text: &str) -> usize {
    let of = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    3 + text.bytes().map(of).sum::<usize>()
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Done,
    /// The caller has no right, or its credentials are invalid.
    Refused,
    /// The request was not done, or only a part of it.
    Failed,
    /// It is unknown whether the request was done.
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

/// A request for a change, or a refused request. `docs/audit.md` describes the fields.
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
    /// Number of further keys, for which there is no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_keys: Option<usize>,
    /// SHA-256 of these keys, each followed by a zero byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_keys_sha256: Option<String>,
    /// Subject of the request, if that is neither a bucket nor a key.
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
    /// Returns true if a client without a user can cause such records.
    fn is_of_nobody(&self) -> bool {
        let Actor { user, node, .. } = &self.actor;
        self.outcome != AuditOutcome::Done && user.is_none() && node.is_none()
    }

    fn cut_keys(&mut self) {
        let mut bytes = 0;
        let fits = |key: &&String| {
            bytes += written_bytes(key);
            bytes <= KEYS_BYTES
        };
        let fitting = self.keys.iter().take_while(fits).count();
        let more = self.keys.split_off(fitting);
        if more.is_empty() {
            return;
        }
        let mut digest = Sha256::new();
        for key in &more {
            digest.update(key.as_bytes());
            digest.update([0]);
        }
        let hex = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.more_keys, self.more_keys_sha256) = (Some(more.len()), Some(hex));
    }

    /// Returns the party with which it shares the room for records.
    fn party(&self) -> Party {
        self.actor.party()
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
    /// Status of the reply; none if the client went away before there was one.
    pub status: Option<u16>,
    /// Bytes of the reply's body.
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
        if record.is_of_nobody() && !self.admits(record.actor.source) {
            return;
        }
        record.cut_keys();
        record.time = self.time();
        self.name(&mut record.actor);
        let has_changed = matches!(record.outcome, AuditOutcome::Done | AuditOutcome::Unknown);
        self.write_of(record.party(), &record, has_changed);
    }

    /// Returns true if a failed request without a user is to have a record.
    fn admits(&self, source: Option<IpAddr>) -> bool {
        self.tell_refusals(false);
        let now = self.clock().monotonic();
        self.refusals.as_ref().is_none_or(|refusals| refusals.admit(source, now))
    }

    /// Adds lines with the number of requests that were only counted: after a while, or now if
    /// `is_end`.
    pub fn tell_refusals(&self, is_end: bool) {
        let Some(refusals) = &self.refusals else { return };
        for counted in refusals.take(self.clock().monotonic(), is_end) {
            let outcome = AuditOutcome::Refused;
            let told = CountedRefusals { time: self.time(), outcome, counted };
            self.write(Party::Other, &told);
        }
    }

    /// Adds a record to an access log.
    pub fn note_access(&self, mut record: AccessRecord<'_>) {
        record.time = self.time();
        self.name(&mut record.actor);
        self.write(record.actor.party(), &record);
    }
}

/// Failed requests without a user that have no records of their own.
#[derive(Serialize)]
struct CountedRefusals {
    time: String,
    outcome: AuditOutcome,
    #[serde(flatten)]
    counted: MoreRefusals,
}

/// A record that is added when this is dropped: with an unknown outcome, unless an outcome was set.
#[derive(Debug)]
pub struct Noting {
    log: LineLog,
    record: AuditRecord,
    /// Set if the request asks for a change; otherwise it is recorded only if it is refused.
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

/// Returns the words of a refusal, and the kind of another error: its words may be the client's.
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
    fn requests_of_nobody_do_not_crowd_out_others() {
        let queue = Arc::new(LineQueue::new("audit", "test"));
        let queues = std::slice::from_ref(&queue);
        let log = LineLog::new(Arc::new(RealClock::default()), Arc::new(|_| None), queues);
        let log = log.bounded();
        let source = Some("10.0.0.7".parse().unwrap());
        let nobody = Actor { source, ..Actor::default() };
        let alice = Actor { user: Some(cairn_base::UserId(7)), ..nobody.clone() };
        for _ in 0..100 {
            for actor in [&nobody, &alice] {
                let outcome = AuditOutcome::Refused;
                log.note(AuditRecord { outcome, actor: actor.clone(), ..AuditRecord::default() });
            }
        }
        log.tell_refusals(true);
        queue.close();
        let lines = queue.take(Duration::ZERO).unwrap().bytes;
        let lines = std::str::from_utf8(&lines).unwrap().lines();
        let records: Vec<serde_json::Value> =
            lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_alice = records.iter().filter(|record| record["user"] == 7).count();
        assert_eq!((of_alice, records.len()), (100, 161));
        let told = records.last().unwrap();
        assert_eq!((&told["more"], &told["source"]), (&40.into(), &"10.0.0.7".into()));
        assert_eq!(told["outcome"], "refused");
    }

    #[test]
    fn a_record_of_many_keys_is_small_whatever_they_are() {
        let queue = Arc::new(LineQueue::new("audit", "test"));
        let log = LineLog::new(
            Arc::new(RealClock::default()),
            Arc::new(|_| None),
            std::slice::from_ref(&queue),
        );
        let keys = vec!["\u{1}".repeat(1024); 1000];
        log.note(AuditRecord { keys, ..AuditRecord::default() });
        let keys: Vec<String> = (0..1000).map(|number| format!("{number:024}")).collect();
        log.note(AuditRecord { keys, ..AuditRecord::default() });
        let line = queue.take(Duration::ZERO).unwrap().bytes;
        assert!(line.len() < 20 << 10, "{}", line.len());
        let lines = std::str::from_utf8(&line).unwrap().lines();
        let records: Vec<serde_json::Value> =
            lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let shown = |record: &serde_json::Value| record["keys"].as_array().unwrap().len() as u64;
        let more = |record: &serde_json::Value| record["more_keys"].as_u64().unwrap();
        assert_eq!((shown(&records[0]), more(&records[0])), (1, 999));
        assert_eq!(shown(&records[1]) + more(&records[1]), 1000);
        let rest: String = (shown(&records[1])..1000).map(|key| format!("{key:024}\0")).collect();
        let digest: String =
            Sha256::digest(rest.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(records[1]["more_keys_sha256"], digest);
    }
}
