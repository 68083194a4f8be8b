//! Processes of a run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Processes that have to keep running, with their names.
#[derive(Clone, Default)]
pub struct RunningProcesses(Rc<RefCell<BTreeMap<u32, String>>>);

impl RunningProcesses {
    pub fn begin(&self, pid: u32, name: &str) {
        self.0.borrow_mut().insert(pid, name.to_owned());
    }

    pub fn end(&self, pid: u32) {
        self.0.borrow_mut().remove(&pid);
    }

    /// Returns the name of a process that has ended on its own.
    pub fn ended(&self) -> Option<String> {
        let has_ended = |pid: u32| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
            // The status stays for the owner of the process.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), options).ok().flatten()
        };
        let running = self.0.borrow();
        let found = running.iter().find(|(pid, _)| has_ended(**pid).is_some());
        found.map(|(_, name)| name.clone())
    }
}
