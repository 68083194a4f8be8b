//! `cairn logs retention`

use std::process::ExitCode;

use cairn_bench::values::size;
use cairn_logs::retention::{Retention, RetentionSettings, SETTINGS};

use super::place::address;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

/// Show or set how long logs stay
///
/// Without limits, which is the default, logs are kept for ever. Only files that a server made for
/// records are deleted, each as a whole, within about an hour. The file of today is never deleted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn logs retention
  cairn logs retention --all --days 30
  cairn logs retention nginx --days 7 --bytes 10g
  cairn logs retention audit --off")]
pub struct RetentionArgs {
    /// Apply to this source, instead of the settings of --all
    #[arg(conflicts_with = "all")]
    source: Option<String>,
    /// Apply to all sources that have no settings of their own
    #[arg(long)]
    all: bool,
    /// Number of days that a file is kept after its day
    #[arg(long, value_name = "N")]
    days: Option<u32>,
    /// Bytes that a source may have, such as 10g; its oldest files are deleted first
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Set no limits: files are kept for ever
    #[arg(long, conflicts_with_all = ["days", "bytes"])]
    off: bool,
    /// Remove the settings of this source, so that those of --all apply again
    #[arg(long, conflicts_with_all = ["days", "bytes", "off", "all"], requires = "source")]
    inherit: bool,
    /// Confirm that the server's clock is right. No logs are deleted before that if the clock has
    /// jumped by more than a day, or if no server ran for that long
    #[arg(long, conflicts_with_all = ["source", "all", "days", "bytes", "off", "inherit"])]
    confirm: bool,
    /// Print the settings as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(server: &Server, bucket: &str, args: &RetentionArgs) -> Result<ExitCode> {
    let path = address(bucket, SETTINGS).path();
    let found = match server.send("GET", &format!("{path}?no-redirect")) {
        Ok(reply) => {
            let etag = reply.header("etag").to_owned();
            Some((etag, reply.json::<RetentionSettings>()?))
        }
        Err(failure) if failure.is_not_found() => None,
        Err(failure) => return Err(failure),
    };
    let mut settings = found.as_ref().map(|(_, settings)| settings.clone()).unwrap_or_default();
    if args.changes()? {
        if args.confirm && found.is_none() {
            let text = "there are no settings: set --days or --bytes first";
            return Err(Failure::not_found(text));
        }
        args.change(&mut settings);
        let condition = match &found {
            Some((etag, _)) => ("if-match", etag.as_str()),
            None => ("if-none-match", "*"),
        };
        server.send_json_if("PUT", &path, &settings, condition)?;
    }
    if args.json {
        output::json(&settings)?
    } else {
        show(&settings)?
    }
    Ok(ExitCode::SUCCESS)
}

impl RetentionArgs {
    /// Returns true if anything is to be set.
    fn changes(&self) -> Result<bool> {
        let is_set = self.days.is_some() || self.bytes.is_some() || self.off || self.inherit;
        let is_of = self.all || self.source.is_some();
        match (is_of, is_set) {
            (true, false) => Err(Failure::usage("nothing to set: name --days, --bytes or --off")),
            (false, true) => Err(Failure::usage("of which source? Name one, or --all")),
            _ => Ok(is_set || self.confirm),
        }
    }

    fn change(&self, settings: &mut RetentionSettings) {
        let retention = Retention { days: self.days, bytes: self.bytes };
        match &self.source {
            Some(source) if self.inherit => drop(settings.sources.remove(source)),
            Some(source) => drop(settings.sources.insert(source.clone(), retention)),
            None if self.all => settings.all = retention,
            None => {}
        }
    }
}

fn show(settings: &RetentionSettings) -> Result<()> {
    let row = |name: &str, retention: &Retention| {
        let days = retention.days.map_or_else(|| "-".to_owned(), |days| days.to_string());
        let bytes = retention.bytes.map_or_else(|| "-".to_owned(), output::human_bytes);
        vec![name.to_owned(), days, bytes]
    };
    let mut rows = vec![row("(all)", &settings.all)];
    rows.extend(settings.sources.iter().map(|(name, retention)| row(name, retention)));
    output::table(&["SOURCE", "DAYS", "SIZE"], rows)
}
