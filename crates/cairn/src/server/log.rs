//! Logging, to stderr.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::{Failure, Result};

/// Options of the log.
#[derive(clap::Args)]
pub struct LogArgs {
    /// Level of the log on stderr: error, warn, info, debug, trace, or a filter by module
    #[arg(long, value_name = "LEVEL", env = "CAIRN_LOG", default_value = "info")]
    log: String,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Text,
    /// One JSON object a line
    Json,
}

/// The library of FUSE warns of what is no trouble: it fails to unmount what has just been
/// unmounted.
const QUIET: (&str, &str) = ("fuser", "fuser=error");

impl LogArgs {
    pub fn start(&self) -> Result<()> {
        start(&self.log, self.log_format)
    }
}

fn start(filter: &str, format: Format) -> Result<()> {
    let mut filter = filter.to_owned();
    let (module, quiet) = QUIET;
    if !filter.contains(module) {
        filter = format!("{filter},{quiet}");
    }
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Failure::usage(format!("--log {filter}: {error}: use a level such as info"))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // It would say on stderr that stderr takes nothing, and panic.
        .log_internal_errors(false);
    let started = match format {
        Format::Text => builder.finish().try_init(),
        Format::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    started.map_err(|error| Failure::new(format!("logging: {error}")))
}
