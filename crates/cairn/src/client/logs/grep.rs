//! `cairn logs grep`

use std::io::{BufRead, Read};
use std::process::ExitCode;

use cairn_logs::Level;
use regex::bytes::{Regex, RegexBuilder};

use super::lines::Lines;
use super::place::files_of;
use super::times::Range;
use crate::connection::Server;
use crate::failure::{Failure, Result};

/// Longest line that is searched, bytes.
const LINE_BYTES: u64 = 64 << 20;

/// Print the lines of a log source that match a pattern
///
/// Exits with 1 if no line matches. Fetches all files of the days in question and searches them on
/// this machine.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn logs grep 'timed? out' nginx
  cairn logs grep -F '10.1.2.3' nginx --since 2026-11-20 --until 2026-11-22
  cairn logs grep '' journal --since 2h --level err")]
pub struct GrepArgs {
    /// A regular expression, in the syntax of Rust's crate regex
    pattern: String,
    /// The log source, as `cairn logs ls` shows it
    source: String,
    /// Search for the pattern as plain text, not as a regular expression
    #[arg(short = 'F', long)]
    fixed_strings: bool,
    /// Ignore the difference between upper and lower case
    #[arg(short, long)]
    ignore_case: bool,
    #[command(flatten)]
    range: Range,
    /// Only records of this severity or a more severe one: emerg, alert, crit, err, warning,
    /// notice, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = Level::parse)]
    level: Option<Level>,
}

impl GrepArgs {
    fn regex(&self) -> Result<Regex> {
        let pattern =
            if self.fixed_strings { regex::escape(&self.pattern) } else { self.pattern.clone() };
        let regex = RegexBuilder::new(&pattern).case_insensitive(self.ignore_case).build();
        regex.map_err(|error| Failure::usage(format!("pattern {:?}: {error}", self.pattern)))
    }

    fn selects(&self, regex: &Regex, line: &[u8]) -> bool {
        let is_severe = |level: Level| Level::of_line(line).is_some_and(|of| of <= level);
        self.range.has(line) && regex.is_match(line) && self.level.is_none_or(is_severe)
    }
}

pub fn run(server: &Server, bucket: &str, args: &GrepArgs) -> Result<ExitCode> {
    let regex = args.regex()?;
    let (mut lines, mut found) = (Lines::new(), false);
    for file in files_of(server, bucket, &args.source, &args.range)? {
        let failed = |error| Failure::new(format!("{}: {error}: try again", file.name()));
        let Some((_, mut reader)) = file.open(server, bucket)? else { continue };
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(LINE_BYTES).read_until(b'\n', &mut line);
            if read.map_err(failed)? == 0 {
                break;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if args.selects(&regex, line) {
                found = true;
                lines.print(line)?;
            }
        }
        lines.flush()?;
    }
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
