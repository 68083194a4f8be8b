//! Sizes of the parts of a process's memory: as options say, or by the memory that there is.

use std::sync::Arc;

use cairn_doors::metrics::{MoreNumbers, gauge};
use cairn_meta::engine::embedded;
use cairn_meta::master;

use super::limit::ProcessMemory;
use crate::failure::{Failure, Result};

const MIB: u64 = 1 << 20;
/// Share of the memory that all rows together get, if no option says otherwise: an eighth.
const ROWS: u64 = 8;

/// A part of the memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Pieces of blocks that are read often.
    Blocks,
    /// Rows that a gateway may use without asking the master.
    LeasedRows,
    /// Rows of a master that are read often.
    Rows,
    /// Pages of the table of rows.
    Pages,
    /// Leases of all sessions of a master.
    Leases,
    /// Rows that are in the log and not in the table yet.
    Memtable,
}

/// Bounds of a size that follows the memory, MiB.
struct Bounds {
    least: u64,
    most: u64,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Blocks => "blocks",
            Part::LeasedRows => "leased-rows",
            Part::Rows => "rows",
            Part::Pages => "pages",
            Part::Leases => "leases",
            Part::Memtable => "memtable",
        }
    }

    /// Returns the option that sets the size.
    pub fn option(self) -> &'static str {
        match self {
            Part::Blocks => "--cache-mib",
            Part::LeasedRows => "--meta-cache-mib",
            Part::Rows => "--row-cache-mib",
            Part::Pages => "--page-cache-mib",
            Part::Leases => "--lease-mib",
            Part::Memtable => "--memtable-mib",
        }
    }

    /// Returns the bounds: the least is what every machine has got before sizes followed the
    /// memory, except that of leases.
    fn bounds(self) -> Bounds {
        let (least, most) = match self {
            Part::Blocks => (64, 64 << 10),
            Part::LeasedRows => (64, 32 << 10),
            Part::Rows | Part::Pages => (16, 16 << 10),
            Part::Leases => (64, 1 << 10),
            // Beyond it the log is due first: it has 80 MiB, and may not be more than a quarter
            // full.
            Part::Memtable => (16, 32),
        };
        Bounds { least, most }
    }
}

/// A part that a role needs, and the size that its option gives, MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeRequest {
    part: Part,
    given_mib: Option<u64>,
}

impl SizeRequest {
    pub fn new(part: Part, given_mib: Option<u64>) -> SizeRequest {
        SizeRequest { part, given_mib }
    }
}

/// Size of a part, MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PartSize {
    part: Part,
    mib: u64,
}

/// Sizes of all parts of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessSizes {
    memory: ProcessMemory,
    sizes: Vec<PartSize>,
}

impl ProcessSizes {
    /// Divides the memory of this process among all parts that its roles need. Refuses options that
    /// ask for more than there is.
    pub fn divide(requests: &[SizeRequest]) -> Result<ProcessSizes> {
        ProcessSizes::of(ProcessMemory::now(), requests)
    }

    fn of(memory: ProcessMemory, requests: &[SizeRequest]) -> Result<ProcessSizes> {
        refuse_excess(memory, requests)?;
        let sizes = requests.iter().map(|request| {
            let by_memory = || by_memory(memory.bytes, requests, request.part);
            PartSize { part: request.part, mib: request.given_mib.unwrap_or_else(by_memory) }
        });
        Ok(ProcessSizes { memory, sizes: sizes.collect() })
    }

    /// Logs the sizes, and warns if they may take nearly all memory.
    pub fn announce(&self) {
        let shown = self.sizes.iter().map(|size| format!("{} {}", size.part.name(), size.mib));
        let shown: Vec<String> = shown.collect();
        let (mib, limit) = (self.memory.bytes.map(|bytes| bytes / MIB), self.memory.limit_name());
        tracing::info!(memory_mib = mib, limit, sizes_mib = shown.join(", "), "sizes of memory");
        let all: u64 = self.sizes.iter().map(|size| size.mib).sum();
        if mib.is_some_and(|mib| all > mib / 4 * 3) {
            let options: Vec<&str> = self.sizes.iter().map(|size| size.part.option()).collect();
            tracing::warn!(
                sizes_mib = all,
                memory_mib = mib,
                "caches may take nearly all memory of this process: give it more memory, or \
                 smaller sizes by {}",
                options.join(", ")
            );
        }
    }

    /// Returns the sizes as metrics.
    pub fn numbers(&self) -> MoreNumbers {
        let sizes = self.clone();
        Arc::new(move || {
            let help = "Memory that this process may have: of the machine or its control group";
            let whole = sizes.memory.bytes.map(|bytes| gauge("memory_limit_bytes", help, bytes));
            let help = "The most that a part of the memory may take";
            let parts = sizes.sizes.iter().map(|size| {
                let bytes = size.mib.saturating_mul(MIB);
                gauge("memory_part_limit_bytes", help, bytes).of("part", size.part.name())
            });
            whole.into_iter().chain(parts).collect()
        })
    }

    /// Returns the size of a part, bytes; its least if no role of this process has it.
    pub fn bytes(&self, part: Part) -> u64 {
        let found = self.sizes.iter().find(|size| size.part == part);
        found.map_or(part.bounds().least, |size| size.mib).saturating_mul(MIB)
    }

    /// Returns the sizes of an engine, in which those of memory are these.
    pub fn engine(&self, config: embedded::Config) -> embedded::Config {
        embedded::Config {
            memtable_bytes: self.bytes(Part::Memtable) as usize,
            cache_bytes: self.bytes(Part::Pages) as usize,
            ..config
        }
    }

    /// Returns the sizes of a master, in which those of memory are these.
    pub fn master(&self, config: master::Config) -> master::Config {
        master::Config {
            cache_bytes: self.bytes(Part::Rows) as usize,
            lease_bytes: self.bytes(Part::Leases) as usize,
            ..config
        }
    }
}

/// Returns the size of a part of a process that has the parts of `requests`, MiB.
fn by_memory(memory: Option<u64>, requests: &[SizeRequest], part: Part) -> u64 {
    let mib = memory.unwrap_or(0) / MIB;
    let has = |part: Part| u64::from(requests.iter().any(|request| request.part == part));
    // Roles with rows share their eighth; a master divides its own between rows and pages.
    let rows = mib / ROWS / (has(Part::LeasedRows) + has(Part::Rows)).max(1);
    let share = match part {
        Part::Blocks => mib / 4,
        Part::LeasedRows => rows,
        Part::Rows => rows / (1 + has(Part::Pages)),
        Part::Pages => rows / 2,
        Part::Leases => mib / 32,
        Part::Memtable => mib / 128,
    };
    let Bounds { least, most } = part.bounds();
    share.clamp(least, most)
}

/// Refuses options that together ask for more than all memory.
fn refuse_excess(memory: ProcessMemory, requests: &[SizeRequest]) -> Result<()> {
    let Some(mib) = memory.bytes.map(|bytes| bytes / MIB) else { return Ok(()) };
    let given = requests.iter().filter_map(|request| Some((request.part, request.given_mib?)));
    let given: Vec<_> = given.collect();
    let all: u64 = given.iter().map(|(_, mib)| mib).sum();
    if all <= mib {
        return Ok(());
    }
    let options: Vec<_> =
        given.iter().map(|(part, mib)| format!("{} {mib}", part.option())).collect();
    Err(Failure::usage(format!(
        "{}: {all} MiB in all, but this process may have only {mib} MiB ({}): make them smaller, \
         or leave them out, so that sizes follow the memory",
        options.join(" "),
        memory.limit_name()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: [Part; 5] = [Part::Blocks, Part::Rows, Part::Leases, Part::Pages, Part::Memtable];
    const IN_DATABASE: [Part; 3] = [Part::Blocks, Part::Rows, Part::Leases];
    const GATEWAY: [Part; 2] = [Part::Blocks, Part::LeasedRows];
    const MACHINE: [Part; 6] =
        [Part::Blocks, Part::LeasedRows, Part::Rows, Part::Leases, Part::Pages, Part::Memtable];

    fn memory(mib: u64) -> ProcessMemory {
        ProcessMemory { bytes: Some(mib * MIB), is_of_group: false }
    }

    fn requests(parts: &[Part]) -> Vec<SizeRequest> {
        parts.iter().map(|part| SizeRequest::new(*part, None)).collect()
    }

    fn divided(mib: u64, parts: &[Part]) -> Vec<u64> {
        let divided = ProcessSizes::of(memory(mib), &requests(parts)).unwrap();
        divided.sizes.iter().map(|size| size.mib).collect()
    }

    #[test]
    fn sizes_follow_the_memory_within_bounds() {
        assert_eq!(divided(64, &SERVER), [64, 16, 64, 16, 16]);
        assert_eq!(divided(512, &SERVER), [128, 32, 64, 32, 16]);
        assert_eq!(divided(8 << 10, &SERVER), [2048, 512, 256, 512, 32]);
        let most = [64 << 10, 16 << 10, 1 << 10, 16 << 10, 32];
        assert_eq!(divided(16 << 20, &SERVER), most);
        assert_eq!(divided(8 << 10, &IN_DATABASE), [2048, 1024, 256]);
        assert_eq!(divided(8 << 10, &GATEWAY), [2048, 1024]);
        let unknown = ProcessMemory { bytes: None, is_of_group: false };
        let least = ProcessSizes::of(unknown, &requests(&GATEWAY)).unwrap();
        assert_eq!(least.bytes(Part::Blocks), 64 * MIB);
    }

    #[test]
    fn roles_of_one_process_share() {
        assert_eq!(divided(512, &MACHINE), [128, 64, 16, 64, 16, 16]);
        assert_eq!(divided(8 << 10, &MACHINE), [2048, 512, 256, 256, 256, 32]);
        for parts in [&SERVER[..], &IN_DATABASE, &GATEWAY, &MACHINE] {
            for mib in [1 << 10, 4 << 10, 64 << 10, 1 << 20] {
                let all: u64 = divided(mib, parts).iter().sum();
                assert!(all <= mib / 2, "{parts:?} of {mib}: {all}");
            }
        }
    }

    #[test]
    fn options_win() {
        let given = [SizeRequest::new(Part::Blocks, Some(1)), SizeRequest::new(Part::Rows, None)];
        let sizes = ProcessSizes::of(memory(8 << 10), &given).unwrap();
        assert_eq!(sizes.bytes(Part::Blocks), MIB);
        assert_eq!(sizes.bytes(Part::Rows), 1024 * MIB);
        let engine = sizes.engine(embedded::Config::default());
        // No role of this process has an engine of its own.
        assert_eq!((engine.cache_bytes, engine.memtable_bytes), (16 << 20, 16 << 20));
        let master = sizes.master(master::Config::default());
        assert_eq!((master.cache_bytes, master.lease_bytes), (1 << 30, 64 << 20));
        let off = ProcessSizes::of(memory(64), &[SizeRequest::new(Part::Blocks, Some(0))]).unwrap();
        assert_eq!(off.bytes(Part::Blocks), 0);
    }

    #[test]
    fn options_beyond_the_memory_are_refused_with_a_remedy() {
        let given = |blocks, rows| {
            let all = [SizeRequest::new(Part::Blocks, blocks), SizeRequest::new(Part::Rows, rows)];
            ProcessSizes::of(memory(1000), &all)
        };
        assert!(given(Some(1000), None).is_ok());
        assert!(given(Some(900), Some(100)).is_ok());
        let text = given(Some(901), Some(100)).unwrap_err().to_string();
        for said in ["--cache-mib 901 --row-cache-mib 100", "1001 MiB", "only 1000 MiB", "leave"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        // The least sizes are no options: a small machine starts.
        assert!(ProcessSizes::of(memory(10), &requests(&MACHINE)).is_ok());
    }
}
