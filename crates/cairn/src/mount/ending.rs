//! Time limit for the end of a mount, whatever it waits for.

use std::thread;
use std::time::Duration;

use cairn_base::waits;
use rustix::process::{Signal, getpid, kill_process};

/// Time that the process of a mount goes on once it serves nothing any more. Its last changes wait
/// for a server for at most [`waits::SLOW_SERVER`].
pub const LIMIT: Duration = Duration::from_secs(waits::SLOW_SERVER.as_secs() + 30);

/// Calls `end` after `limit`, in a thread that waits for nothing else. If the process ends before,
/// nothing happens.
pub fn after(limit: Duration, end: impl FnOnce() + Send + 'static) {
    let wait = move || {
        thread::sleep(limit);
        end();
    };
    if let Err(error) = thread::Builder::new().name("cairn-ending".into()).spawn(wait) {
        tracing::warn!(%error, "nobody looks after the end of this mount");
    }
}

/// Ends this process, even if its normal end is stuck.
pub fn end_now() {
    let limit_s = LIMIT.as_secs();
    tracing::error!(limit_s, "the mount does not end: its process is killed, changes may be LOST");
    let _ = kill_process(getpid(), Signal::KILL);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn it_is_called_after_its_time_whatever_else_goes_on() {
        let (sender, called) = channel();
        after(Duration::from_millis(1), move || sender.send(()).unwrap());
        assert_eq!(called.recv_timeout(waits::SLOW_SERVER), Ok(()));
        let (sender, called) = channel();
        after(LIMIT, move || sender.send(()).unwrap());
        assert!(called.try_recv().is_err());
    }
}
