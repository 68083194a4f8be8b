//! Memory that this process may have: that of the machine, or of a control group that limits it.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory that a process may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessMemory {
    /// Bytes; `None` if the kernel does not say.
    pub bytes: Option<u64>,
    /// Set if a control group allows less than the machine has.
    pub is_of_group: bool,
}

impl ProcessMemory {
    /// Reads the memory of this process.
    pub fn now() -> ProcessMemory {
        let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        ProcessMemory::of(&machine, Path::new("/sys/fs/cgroup"), &own)
    }

    /// Returns the memory by `/proc/meminfo`, and by the control groups below `root` that
    /// `/proc/self/cgroup` names.
    fn of(machine: &str, root: &Path, own: &str) -> ProcessMemory {
        let of_machine = memory_total(machine);
        match (memory_of_groups(root, own), of_machine) {
            (Some(group), machine) if machine.is_none_or(|machine| group < machine) => {
                ProcessMemory { bytes: Some(group), is_of_group: true }
            }
            (_, bytes) => ProcessMemory { bytes, is_of_group: false },
        }
    }

    /// Returns the place of the limit, for messages.
    pub fn limit_name(self) -> &'static str {
        if self.is_of_group { "the limit of its control group" } else { "that of the machine" }
    }
}

/// Returns the memory in `/proc/meminfo`, bytes.
fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the least limit of the control groups of a process, by its `/proc/self/cgroup`: of the
/// group itself and of those above it, of version 1 or 2.
fn memory_of_groups(root: &Path, own: &str) -> Option<u64> {
    let groups = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers.split(',').any(|name| name == "memory") {
            true => Some((root.join("memory"), path, "memory.limit_in_bytes")),
            false if controllers.is_empty() => Some((root.to_owned(), path, "memory.max")),
            false => None,
        }
    });
    groups
        .flat_map(|(root, path, file)| {
            let path = Path::new(path.trim_start_matches('/'));
            // In a container the path may be that of the host, which does not exist here.
            let all: Vec<PathBuf> =
                path.ancestors().map(|path| root.join(path).join(file)).collect();
            all.into_iter().filter_map(|path| limit_of(&fs::read_to_string(path).ok()?))
        })
        .min()
}

/// Returns the limit in a file of a control group; `None` if it is `max`.
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit that version 1 shows where there is none.
    const UNLIMITED_V1: &str = "9223372036854771712\n";

    #[test]
    fn memory_is_that_of_the_tightest_group() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/cairn.service");
        fs::create_dir_all(&group).unwrap();
        let own = "0::/system.slice/cairn.service\n";
        assert_eq!(memory_of_groups(root.path(), own), None);
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), own), None);
        fs::write(root.path().join("system.slice/memory.max"), "1073741824\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), own), Some(1 << 30));
        fs::write(group.join("memory.max"), "536870912\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), own), Some(512 << 20));
        fs::create_dir_all(root.path().join("memory/a")).unwrap();
        fs::write(root.path().join("memory/a/memory.limit_in_bytes"), "4096\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), "5:cpu:/a\n4:memory:/a\n"), Some(4096));
        // A group of the host, in a container that sees its own as the root.
        fs::write(root.path().join("memory.max"), "268435456\n").unwrap();
        assert_eq!(memory_of_groups(root.path(), "0::/../docker/7\n"), Some(256 << 20));
    }

    #[test]
    fn a_group_counts_if_it_allows_less_than_the_machine_has() {
        let root = tempfile::tempdir().unwrap();
        let machine = "MemTotal:       1048576 kB\nMemFree: 1 kB\n";
        let memory = |own| ProcessMemory::of(machine, root.path(), own);
        let whole = ProcessMemory { bytes: Some(1 << 30), is_of_group: false };
        assert_eq!(memory("0::/\n"), whole);
        assert_eq!(memory(""), whole);
        for text in [UNLIMITED_V1, "max\n", "nonsense", "", "2147483648\n"] {
            fs::write(root.path().join("memory.max"), text).unwrap();
            assert_eq!(memory("0::/\n"), whole, "{text}");
        }
        fs::write(root.path().join("memory.max"), "536870912\n").unwrap();
        let half = ProcessMemory { bytes: Some(512 << 20), is_of_group: true };
        assert_eq!(memory("0::/\n"), half);
        assert_eq!(ProcessMemory::of("", root.path(), "0::/\n"), half);
        let unknown = ProcessMemory { bytes: None, is_of_group: false };
        assert_eq!(ProcessMemory::of("MemTotal: much\n", root.path(), "1:cpu:/\n"), unknown);
    }
}
