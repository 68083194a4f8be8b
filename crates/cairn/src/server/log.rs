//! Logging, to stderr.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::failure::{Failure, Result};
use crate::server::records::own::OwnLog;

/// Options of the log.
#[derive(clap::Args)]
pub struct LogArgs {
    /// Level of the log on stderr: error, warn, info, debug, trace, or a filter by module
    #[arg(long, value_name = "LEVEL", env = "CAIRN_LOG", default_value = "info")]
    log: String,
    /// Form of the log
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Text,
    /// One JSON object a line
    Json,
    /// To journald itself, with the fields of each record as fields of its own, such as
    /// CAIRN_TRACE; not to stderr
    Journal,
}

/// Libraries whose messages are suppressed. The library of FUSE warns when it cannot unmount what
/// has just been unmounted. The library of consensus logs each step, and each message that did not
/// arrive; the failures that end it are returned to its caller.
const QUIET: [(&str, LevelFilter, &str); 2] =
    [("fuser", LevelFilter::ERROR, "fuser=error"), ("openraft", LevelFilter::OFF, "openraft=off")];

impl LogArgs {
    pub fn start(&self) -> Result<()> {
        start(&self.log, self.log_format)
    }
}

fn start(filter: &str, format: Format) -> Result<()> {
    let mut filter = filter.to_owned();
    for (module, _, quiet) in QUIET {
        if !filter.contains(module) {
            filter = format!("{filter},{quiet}");
        }
    }
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Failure::usage(format!("--log {filter}: {error}: use a level such as info"))
    })?;
    let shown = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // Otherwise it would report on stderr that stderr fails, and panic.
        .log_internal_errors(false);
    let own = OwnLog.with_filter(
        QUIET
            .iter()
            .fold(Targets::new().with_default(LevelFilter::INFO), |all, (module, level, _)| {
                all.with_target(*module, *level)
            }),
    );
    let all = tracing_subscriber::registry().with(own);
    let started = match format {
        Format::Text => all.with(shown.with_filter(filter)).try_init(),
        Format::Journal => all.with(journal()?.with_filter(filter)).try_init(),
        Format::Json => all.with(shown.json().flatten_event(true).with_filter(filter)).try_init(),
    };
    started.map_err(|error| Failure::new(format!("logging: {error}")))
}

fn journal() -> Result<tracing_journald::Layer> {
    let layer = tracing_journald::layer();
    let layer = layer.map_err(|error| {
        Failure::new(format!("--log-format journal: journald cannot be reached: {error}"))
    })?;
    Ok(layer.with_field_prefix(Some("CAIRN".to_owned())).with_syslog_identifier("cairn".to_owned()))
}
