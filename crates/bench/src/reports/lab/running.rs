//! The processes of a run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The processes that are to run, with their names.
#[derive(Clone, Default)]
pub struct RunningProcesses(Rc<RefCell<BTreeMap<u32, String>>>);

impl RunningProcesses {
    pub fn begin(&self, pid: u32, name: &str) {
        self.0.borrow_mut().insert(pid, name.to_owned());
    }

    pub fn end(&self, pid: u32) {
        self.0.borrow_mut().remove(&pid);
    }

    /// The name of one that has ended though nobody ended it.
    pub fn ended(&self) -> Option<String> {
        let has_ended = |pid: u32| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
            // Its status stays for whoever started it.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), options).ok().flatten()
        };
        let running = self.0.borrow();
        let found = running.iter().find(|(pid, _)| has_ended(**pid).is_some());
        found.map(|(_, name)| name.clone())
    }
}
