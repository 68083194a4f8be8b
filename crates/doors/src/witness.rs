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
    /// Why it was refused: without anything that the client said.
    pub reason: Option<String>,
    /// It was refused, whatever the status is.
    pub is_refused: bool,
    /// A browser asks, without credentials, what a page may do.
    pub is_preflight: bool,
    /// It changed something, whatever its method is.
    pub has_changed: bool,
    /// Records of logs in the request, and those of them that were not kept, by the kind of error.
    pub records: usize,
    pub not_kept: BTreeMap<&'static str, usize>,
    /// The outcome, where the reply began before it was known.
    pub late: Option<AuditOutcome>,
}

impl Facts {
    /// The outcome of a request of which some records were not kept, and why. The words of errors
    /// may be of the client.
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

/// Told by the door what it learns of a request; nothing where there are no records. Clones are of
/// the same request.
#[derive(Clone, Debug, Default)]
pub struct Witness(Option<Arc<Mutex<Facts>>>);

impl Witness {
    /// That of a request, which carries it.
    pub fn of(extensions: &Extensions) -> Witness {
        extensions.get::<Witness>().cloned().unwrap_or_default()
    }

    /// For a request of which there are records.
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
