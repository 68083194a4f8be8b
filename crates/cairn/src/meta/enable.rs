//! `cairn meta enable`: turns a capability on in the store of one server.

use cairn_base::CapabilitySet;
use cairn_meta::capabilities;
use cairn_meta::engine::postgres;

use crate::capability_list::{self, CapabilityArgs};
use crate::dir::{CLUSTER_FILE, DataDir, MACHINE};
use crate::failure::{Failure, Result};
use crate::metadata::{MetaArgs, Metadata};
use crate::offline::store::frozen_engine;
use crate::output;

/// Turn a capability on, for good, or list what can be turned on
///
/// A capability lets the store write what programs before it must not read. From then on such a
/// program does not open the store any more, and its mounts are refused. There is no way back: make
/// a backup first. No server may be using the store. Without a name, the capabilities of this
/// program are listed. A cluster has `cairn cluster enable`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn meta enable /srv/cairn                     (lists them)
  cairn meta enable /srv/cairn required-fields")]
pub struct EnableArgs {
    #[command(flatten)]
    capability: CapabilityArgs,
    #[command(flatten)]
    meta: MetaArgs,
}

pub fn run(args: &EnableArgs) -> Result<()> {
    let CapabilityArgs { dir: path, name } = &args.capability;
    if path.join(MACHINE).exists() || path.join(CLUSTER_FILE).exists() {
        let shown = path.display();
        return Err(Failure::new(format!(
            "{shown}: belongs to a node of a cluster: use cairn cluster enable {shown}"
        )));
    }
    let dir = DataDir::open(path, args.meta.place())?;
    let Some(name) = *name else { return capability_list::print(enabled(args, &dir)?) };
    if enabled(args, &dir)?.contains(name) {
        return output::line(format!("{name} is on already"));
    }
    let metadata = match args.meta.database() {
        None => Metadata::in_directory(&dir)?,
        Some(config) => Metadata::in_known_database(&config)?,
    };
    capabilities::enable(&*metadata.engine, name)?;
    if let Some(embedded) = &metadata.embedded {
        embedded.checkpoint()?;
    }
    output::line(format!("{name} is on: programs without it do not open this store any more"))
}

/// Reads the capabilities that are on. Changes nothing.
fn enabled(args: &EnableArgs, dir: &DataDir) -> Result<CapabilitySet> {
    let Some(config) = args.meta.database() else {
        return Ok(capabilities::enabled(&*frozen_engine(dir)?)?);
    };
    // Nothing is written, so nothing can be lost.
    let config = postgres::Config { accept_lossy_failover: true, ..config };
    let metadata = Metadata::in_known_database(&config)?;
    if !metadata.has_store(dir)? {
        return Err(metadata.foreign("holds no metadata"));
    }
    Ok(capabilities::enabled(&*metadata.engine)?)
}
