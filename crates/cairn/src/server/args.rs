//! The options of `cairn server`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{doors, log};
use crate::config::ConfigArgs;
use crate::dir::MetaPlace;
use crate::failure::Result;
use crate::memory::{MetadataMemoryArgs, Part, ProcessSizes, SizeRequest};
use crate::metadata::MetaArgs;

/// Serve a store on this machine's disk: S3, HTTP, websites, NFS, syslog, and the console
///
/// An empty or missing DIR becomes a new store, and its first credentials are printed, once. Stop
/// it with SIGTERM or Ctrl-C: requests in progress have 30 seconds to end. Nothing acknowledged is
/// lost if it is killed instead.
///
/// Without TLS anybody on the way can read what is sent. Beyond this machine that is allowed, as
/// there may be a proxy or a trusted network. The server warns of it: S3 clients send no secret,
/// but clients of the HTTP door do.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Environment:
  CAIRN_ROOT_KEY, CAIRN_ROOT_SECRET  as --root-key, and the secret itself
  CAIRN_META                         as --meta, where others do not see the password

Signals:
  SIGTERM, SIGINT  stop in order; a second one stops at once
  SIGHUP           read the TLS certificate again (it is also noticed when its files change)

Examples:
  cairn server /srv/cairn
  cairn server /srv/cairn --s3 0.0.0.0:9000 --http 0.0.0.0:8080 \\
      --tls-cert fullchain.pem --tls-key privkey.pem --domain s3.example.org
  cairn server /srv/cairn --nfs 0.0.0.0:2049 --nfs-client 10.0.0.0/8
  CAIRN_ROOT_KEY=admin CAIRN_ROOT_SECRET=... cairn server /data --log-format json")]
pub struct ServerArgs {
    /// The data directory
    pub(super) dir: PathBuf,
    #[command(flatten)]
    pub(super) meta: MetaArgs,
    /// Start even if a failover of the database to one of its standbys may lose acknowledged
    /// changes
    #[arg(long)]
    pub(super) accept_lossy_failover: bool,
    #[command(flatten)]
    pub(super) doors: doors::DoorArgs,
    /// Where an acknowledged write has arrived
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub(super) durability: Durability,
    /// Memory for blocks that are read often, MiB [default: by the memory of the process, at least
    /// 64]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 24))]
    cache_mib: Option<u64>,
    #[command(flatten)]
    memory: MetadataMemoryArgs,
    /// Days between two scrubs, which slowly read and verify every block; 0 for no scrubs
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(super) scrub_days: u32,
    /// Id of an access key of root to use instead of a generated one; at every start its secret
    /// becomes that of --root-secret-file
    #[arg(long, value_name = "ID", requires = "root_secret_file")]
    pub(super) root_key: Option<String>,
    /// File with the secret of --root-key
    #[arg(long, value_name = "FILE", requires = "root_key")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(super) root_secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) log: log::LogArgs,
}

impl ServerArgs {
    /// Divides the memory of this process among the parts of a server.
    pub(super) fn sizes(&self) -> Result<ProcessSizes> {
        let mut requests = vec![SizeRequest::new(Part::Blocks, self.cache_mib)];
        requests.extend(self.memory.requests(self.meta.place() == MetaPlace::Postgres));
        ProcessSizes::divide(&requests)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Durability {
    /// The disk: a power cut loses nothing
    Sync,
    /// The memory of the kernel: blocks survive a crash of cairn, but not a power cut
    Async,
}
