//! The caller of a request of the kernel.

use std::fs;

use cairn_posix::Who;
use fuser::Request;

/// Returns the caller of a request. The kernel has checked mode bits.
pub fn who(request: &Request) -> Who {
    Who::process(request.uid(), request.gid(), request.pid(), groups_of)
}

/// Returns true if a thread has got a signal that it does not block, or is gone. Nothing is known
/// of a thread in another PID namespace, which has no number here (0).
pub fn is_signalled(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

/// System call in which a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Fcntl,
    Flock,
    /// The thread runs, and may be about to enter such a call.
    Running,
    /// Another call, or it may not be looked at, or there is no such thread here.
    Unknown,
}

/// Returns the call in which a thread is. No thread is mistaken for another by its number. On
/// machines that run processes of 32 bits, no call of 64 bits that could wait for a lock has the
/// number of their calls.
pub fn call(thread: u32) -> Call {
    if thread == 0 {
        return Call::Unknown;
    }
    match fs::read_to_string(format!("/proc/{thread}/syscall")) {
        Ok(text) => call_of(&text),
        Err(_) => Call::Unknown,
    }
}

fn call_of(text: &str) -> Call {
    let (fcntl, flock): (&[u32], &[u32]) = match std::env::consts::ARCH {
        "x86_64" => (&[72, 55, 221], &[73, 143]),
        "aarch64" => (&[25, 55, 221], &[32, 143]),
        "riscv64" | "loongarch64" => (&[25], &[32]),
        _ => (&[], &[]),
    };
    match text.split_whitespace().next() {
        Some("running") => Call::Running,
        Some(number) => match number.parse() {
            Ok(number) if fcntl.contains(&number) => Call::Fcntl,
            Ok(number) if flock.contains(&number) => Call::Flock,
            _ => Call::Unknown,
        },
        None => Call::Unknown,
    }
}

/// Returns the groups of a process; none for a process that is gone, so that nothing is allowed by
/// them.
fn groups_of(pid: u32) -> Vec<u32> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return Vec::new() };
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|gid| gid.parse().ok()).collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests run on this machine")]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_lock_is_seen_in_its_call() {
        let path = std::env::temp_dir().join(format!("cairn-call-{}", std::process::id()));
        let holds = fs::File::create(&path).expect("a file");
        holds.lock().expect("a lock by flock");
        let waits = fs::File::open(&path).expect("the file");
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let own = fs::read_link("/proc/thread-self").expect("a thread");
            let number = own.file_name().and_then(|name| name.to_str());
            let number: Option<u32> = number.and_then(|name| name.parse().ok());
            tell.send(number).expect("somebody who listens");
            waits.lock().expect("a lock by flock");
        });
        let thread = told.recv().ok().flatten().expect("its number");
        let seen = (0..60_000)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                call(thread)
            })
            .find(|call| *call == Call::Flock);
        holds.unlock().expect("no lock");
        waiter.join().expect("it ends");
        fs::remove_file(&path).expect("no file");
        assert_eq!(seen, Some(Call::Flock));
        assert_eq!(call(thread), Call::Unknown);
        assert_eq!(call(0), Call::Unknown);
    }

    #[test]
    fn what_is_no_call_is_unknown() {
        assert_eq!(call_of("running\n"), Call::Running);
        for text in ["", "-1 0x7ffd 0x7f", "0 0x3 0x7ffd", "x", "99999999999999999999 0x1"] {
            assert_eq!(call_of(text), Call::Unknown, "{text:?}");
        }
    }
}
