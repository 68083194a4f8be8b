//! Statistics in `/proc`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sample::{DiskTimes, Host, Program};

/// Returns which of the relevant programs a process is, by its name and its arguments.
pub fn program(name: &str, command: &str) -> Option<Program> {
    match name {
        "cairn" => {
            let serves = ["server", "master", "chunkserver", "gateway", "mount"];
            let verb = command.split('\0').nth(1)?;
            serves.contains(&verb).then_some(Program::Cairn)
        }
        "postgres" => Some(Program::Postgres),
        "nginx" | "haproxy" | "pgbouncer" => Some(Program::Proxy),
        _ => None,
    }
}

/// Parses `/proc/PID/task/TID/schedstat`: time running, and time waiting for a core.
pub fn schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    let mut next = || numbers.next().flatten().map(Duration::from_nanos);
    Some((next()?, next()?))
}

/// Parses `/proc/PID/limits`: the limit of open files.
pub fn files_limit(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses `/proc/stat`: cores and their ticks.
pub fn stat(text: &str) -> Host {
    let mut host = Host::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        if name == "cpu" {
            let ticks: Vec<u64> =
                rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
            let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
            // User, nice, system, idle, iowait, irq, softirq, steal; the rest is included in these.
            host.idle = tick(3) + tick(4);
            host.stolen = tick(7);
            host.busy = tick(0) + tick(1) + tick(2) + tick(5) + tick(6) + tick(7);
        } else if name.starts_with("cpu") {
            host.cores += 1;
        }
    }
    host
}

/// Parses `/proc/diskstats`.
pub fn disks(text: &str) -> BTreeMap<String, DiskTimes> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let name = (*words.get(2)?).to_owned();
        let times = DiskTimes {
            reads: number(3)?,
            reads_ms: number(6)?,
            writes: number(7)?,
            writes_ms: number(10)?,
            busy_ms: number(12)?,
        };
        let is_real = !name.starts_with("loop") && !name.starts_with("ram");
        is_real.then_some((name, times))
    };
    text.lines().filter_map(line).collect()
}

/// Parses `/proc/net/snmp` and `/proc/net/netstat`: TCP segments sent, and sent again because they
/// were lost. Segments that the other side reported to have already were only late, as on a busy
/// machine.
pub fn segments(snmp: &str, netstat: &str) -> (u64, u64) {
    let late = named(netstat, "TcpExt: ", "TCPDSACKRecvSegs");
    let resent = named(snmp, "Tcp: ", "RetransSegs").saturating_sub(late);
    (named(snmp, "Tcp: ", "OutSegs"), resent)
}

/// Returns a number from a table of one line of names and one line of values; 0 if it is missing.
fn named(text: &str, table: &str, wanted: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let found = pairs.find(|(name, _)| *name == wanted);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Parses `/proc/net/dev`: bytes received and sent, by device.
pub fn links(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        Some((name.trim().to_owned(), number(0)? + number(8)?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn programs_that_matter() {
        assert_eq!(program("cairn", "cairn\0server\0/srv\0"), Some(Program::Cairn));
        assert_eq!(program("cairn", "cairn\0doctor\0"), None);
        assert_eq!(program("cairn", "cairn\0"), None);
        assert_eq!(program("postgres", "postgres: checkpointer"), Some(Program::Postgres));
        assert_eq!(program("nginx", ""), Some(Program::Proxy));
        assert_eq!(program("bash", ""), None);
    }

    #[test]
    fn times_of_a_thread() {
        let times = (Duration::from_nanos(5), Duration::from_nanos(7));
        assert_eq!(schedstat("5 7 12\n"), Some(times));
        assert_eq!(schedstat("5\n"), None);
    }

    #[test]
    fn limits_of_files() {
        let text =
            "Limit  Soft  Hard\nMax open files            1024                 4096   files\n";
        assert_eq!(files_limit(text), Some(1024));
        assert_eq!(files_limit("Max open files   unlimited unlimited"), None);
    }

    #[test]
    fn ticks_of_cores() {
        let host = stat("cpu  10 1 20 100 5 2 3 4 9 0\ncpu0 1 2\ncpu1 1 2\nintr 7\n");
        assert_eq!((host.cores, host.busy, host.idle, host.stolen), (2, 40, 105, 4));
    }

    #[test]
    fn disks_and_what_they_did() {
        let text = " 254 0 vda 10 0 80 11 20 1 160 22 0 33 44 0 0 0 0\n 7 0 loop0 1 1 1 1 1 1 1 1 0 1 1\n x\n";
        let found = disks(text);
        let vda = DiskTimes { reads: 10, reads_ms: 11, writes: 20, writes_ms: 22, busy_ms: 33 };
        assert_eq!(found, BTreeMap::from([("vda".to_owned(), vda)]));
    }

    #[test]
    fn segments_by_their_names() {
        let text = "Ip: A B\nIp: 1 2\nTcp: InSegs OutSegs RetransSegs\nTcp: 1 20 3\n";
        let late = "TcpExt: A TCPDSACKRecvSegs\nTcpExt: 1 2\nIpExt: A\nIpExt: 1\n";
        assert_eq!(segments(text, late), (20, 1));
        assert_eq!(segments(text, ""), (20, 3));
        assert_eq!(segments("", late), (0, 0));
    }

    #[test]
    fn bytes_of_devices() {
        let text = "Inter-| Receive\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n";
        assert_eq!(links(text).get("eth0"), Some(&150));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "([a-zA-Z:]| |\n|[0-9]){0,120}") {
            stat(&text);
            disks(&text);
            segments(&text, &text);
            links(&text);
            schedstat(&text);
            files_limit(&text);
        }
    }
}
