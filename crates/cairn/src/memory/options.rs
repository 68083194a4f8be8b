//! Options for the memory of the metadata, which servers and masters have alike.

use super::sizes::{Part, SizeRequest};

#[derive(clap::Args, Clone, Default, Debug)]
pub struct MetadataMemoryArgs {
    /// Memory for rows of the metadata that are read often, MiB [default: by the memory of the
    /// process, at least 16]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    row_cache_mib: Option<u64>,
    /// Memory for pages of the table of rows, MiB [default: by the memory of the process, at least
    /// 16]
    #[arg(long, value_name = "N", conflicts_with = "meta")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    page_cache_mib: Option<u64>,
    /// Memory for the leases of all mounts and gateways, MiB; beyond it the oldest are recalled
    /// [default: by the memory of the process, at least 64]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    lease_mib: Option<u64>,
    /// Memory for rows that are in the log and not in the table yet, MiB; four times as much while
    /// the disk is behind [default: by the memory of the process, 16 to 32]
    #[arg(long, value_name = "N", conflicts_with = "meta")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=64))]
    memtable_mib: Option<u64>,
}

impl MetadataMemoryArgs {
    /// Returns what a master needs, whose metadata may be in a database.
    pub fn requests(&self, in_database: bool) -> Vec<SizeRequest> {
        let mut all = vec![
            SizeRequest::new(Part::Rows, self.row_cache_mib),
            SizeRequest::new(Part::Leases, self.lease_mib),
        ];
        if !in_database {
            all.push(SizeRequest::new(Part::Pages, self.page_cache_mib));
            all.push(SizeRequest::new(Part::Memtable, self.memtable_mib));
        }
        all
    }
}
