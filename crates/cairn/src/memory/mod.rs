//! Memory of this process, and its division among caches and the rows that are not at rest.
//!
//! ```text
//!   /proc/meminfo, memory.max of the groups ──► limit: ProcessMemory ─┐
//!   --cache-mib and so on ──► options ──► SizeRequest, one a part ────┴─► sizes: ProcessSizes
//! ```
//!
//! A process asks once for the parts of all its roles, so that these share what there is.

mod limit;

mod sizes;

mod options;

pub use limit::ProcessMemory;
pub use options::MetadataMemoryArgs;
pub use sizes::{Part, ProcessSizes, SizeRequest};
