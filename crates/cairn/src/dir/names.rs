//! Names of files and directories that say what a directory is.

use cairn_base::Role;

/// File in the directory of a node of a cluster, once it has joined.
pub const CLUSTER_FILE: &str = "cluster.toml";
/// File in the directory of a machine of `cairn node`.
pub const MACHINE: &str = "machine.toml";

/// File in the directory of a server that becomes a machine, until that is undone or finalized.
pub const ADOPTION_FILE: &str = "adoption.toml";

/// Dump of the metadata of such a server.
pub const ADOPTION_DUMP: &str = "adoption.dump";

/// Returns the directory of a machine's node for a role; for a chunkserver, of its first one.
pub fn directory_of_role(role: Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Chunkserver => "disk",
        Role::Gateway => "gateway",
    }
}
