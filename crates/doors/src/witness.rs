//! Facts about a request that become known on its way, for its records.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_audit::{Actor, AuditOutcome};
use cairn_auth::Caller;
use http::Extensions;
use parking_lot::Mutex;

/// Facts that only the door of a request knows.
#[derive(Debug, Default)]
pub struct Facts {
    pub operation: Option<&'static str>,
    pub actor: Option<Actor>,
    pub bucket: Option<String>,
    pub key: Option<String>,
    pub keys: Vec<String>,
    pub resource: Option<String>,
    /// The reason for a refusal, without any words of the client.
    pub reason: Option<String>,
    /// True if the request was refused, whatever the status is.
    pub is_refused: bool,
    /// True if a browser asks, without credentials, what a page may do.
    pub is_preflight: bool,
    /// True if the request asks for the traffic itself, in which it does not count.
    pub is_of_traffic: bool,
    /// True if the request changed something, whatever its method is.
    pub has_changed: bool,
    /// Number of records of logs in the request, and of those that were not kept, by the kind of
    /// error.
    pub records: usize,
    pub not_kept: BTreeMap<&'static str, usize>,
    /// The outcome, if the reply began before it was known.
    pub late: Option<AuditOutcome>,
}

impl Facts {
    /// Returns the outcome of a request some of whose records were not kept, and the reason, which
    /// has no texts of errors: they may contain words of the client.
    pub fn partial(&self) -> Option<(AuditOutcome, String)> {
        let not_kept: usize = self.not_kept.values().sum();
        let all = self.not_kept.iter().map(|(kind, count)| format!("{count} {kind}"));
        let kinds = all.collect::<Vec<_>>().join(", ");
        let why = format!("{not_kept} of {} records were not kept: {kinds}", self.records);
        let is_refused = self.not_kept.get("denied") == Some(&self.records);
        let outcome = if is_refused { AuditOutcome::Refused } else { AuditOutcome::Failed };
        (not_kept > 0).then_some((outcome, why))
    }
}

/// Receives the facts that the door learns about a request; ignores them if there are no records.
/// Clones belong to the same request.
#[derive(Clone, Debug, Default)]
pub struct Witness(Option<Arc<Mutex<Facts>>>);

impl Witness {
    /// Returns the witness of a request, which carries it.
    pub fn of(extensions: &Extensions) -> Witness {
        extensions.get::<Witness>().cloned().unwrap_or_default()
    }

    /// Returns a witness for a request with records.
    pub(crate) fn new() -> Witness {
        Witness(Some(Arc::default()))
    }

    pub fn note(&self, tell: impl FnOnce(&mut Facts)) {
        if let Some(facts) = &self.0 {
            tell(&mut facts.lock());
        }
    }

    pub fn by(&self, caller: &Caller) {
        self.note(|facts| facts.actor = Some(Actor::of(caller)));
    }

    pub(crate) fn take(&self) -> Facts {
        self.0.as_ref().map_or_else(Facts::default, |facts| std::mem::take(&mut facts.lock()))
    }
}
