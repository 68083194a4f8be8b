//! Faults, and the calls at which they occur.

use std::io;

/// A call that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Call {
    Open,
    Create,
    List,
    Remove,
    Rename,
    /// `Disk::sync`, which syncs names.
    SyncNames,
    Read,
    Write,
    /// `DiskFile::sync_data`.
    SyncData,
    Allocate,
    SetLen,
}

/// Fails a call once, or from then on.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Call to fail; `None` for any.
    pub call: Option<Call>,
    /// Number of matching calls that succeed first.
    pub after: u64,
    pub kind: io::ErrorKind,
    /// Makes every later matching call fail as well.
    pub sticky: bool,
}

impl Fault {
    /// Fails the matching call that comes after `after` others with an I/O error, once.
    pub fn once(call: Option<Call>, after: u64) -> Fault {
        Fault { call, after, kind: io::ErrorKind::Other, sticky: false }
    }

    pub fn kind(self, kind: io::ErrorKind) -> Fault {
        Fault { kind, ..self }
    }

    pub fn sticky(self) -> Fault {
        Fault { sticky: true, ..self }
    }
}

#[derive(Default, Debug)]
pub(crate) struct Faults {
    plan: Vec<Fault>,
    calls: u64,
    fired: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.plan.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.plan.clear();
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn fired(&self) -> u64 {
        self.fired
    }

    /// Counts a call, and returns its fault if it has one.
    pub(crate) fn check(&mut self, call: Call) -> io::Result<()> {
        self.calls += 1;
        let mut error = None;
        self.plan.retain_mut(|fault| {
            if fault.call.is_some_and(|wanted| wanted != call) {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            error = Some(fault.kind);
            fault.sticky
        });
        match error {
            Some(kind) => {
                self.fired += 1;
                Err(io::Error::new(kind, format!("planned fault in {call:?}")))
            }
            None => Ok(()),
        }
    }
}
