//! A process that ends when it is dropped.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::running::RunningProcesses;
use super::site::Lab;
use super::system::{LOOK, wait};
use crate::error::{Error, Result};

/// Time that a process may take to end before it is killed.
const GOODBYE: Duration = Duration::from_secs(15);

pub struct Process {
    pub name: String,
    child: Child,
    /// File of its output, stdout and stderr.
    log: PathBuf,
    ending: Signal,
    fallen: Rc<RefCell<Vec<String>>>,
    running: RunningProcesses,
    is_over: bool,
}

impl Process {
    /// Starts a command, which `ending` ends later.
    pub fn start(lab: &Lab, name: &str, ending: Signal, mut command: Command) -> Result<Process> {
        let log = lab.path(&format!("{name}.log"));
        let failed = |error| Error::failed(format!("{name}: {error}"));
        let output = File::create(&log).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        // Ctrl-C is for this program, which ends the others in order.
        let child = command.process_group(0).spawn().map_err(failed)?;
        let (fallen, running) = (Rc::clone(&lab.fallen), lab.running.clone());
        running.begin(child.id(), name);
        Ok(Process { name: name.to_owned(), child, log, ending, fallen, running, is_over: false })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far.
    pub fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it is ready; fails if it ends before.
    pub fn wait<T>(&mut self, mut look: impl FnMut(&Process) -> Result<Option<T>>) -> Result<T> {
        let what = format!("{} is ready", self.name);
        wait(&what, || match self.ended() {
            Some(how) => Err(Error::failed(how)),
            None => look(self),
        })
    }

    /// Returns how it ended, if it did.
    fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let printed = self.printed();
        let last = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        Some(format!("{} ended by itself ({status}); it said last: {last}", self.name))
    }

    /// Ends it, if it has not ended on its own.
    pub fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        self.running.end(self.child.id());
        if let Some(how) = self.ended() {
            return self.fallen.borrow_mut().push(how);
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended meanwhile.
            let _ = kill_process(pid, self.ending);
        }
        let began = Instant::now();
        while began.elapsed() < GOODBYE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK / 4);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
