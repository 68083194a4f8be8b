//! `cairn logs tail`

use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use super::super::address::escape;
use super::events::{Event, Events};
use super::lines::Lines;
use super::place::address;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

/// Pause before a lost connection is made again.
const AGAIN: Duration = Duration::from_secs(1);

/// Print the last lines of a log source
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn logs tail nginx
  cairn logs tail -n 100 -f nginx | jq .event")]
pub struct TailArgs {
    /// The log source, as `cairn logs ls` shows it
    source: String,
    /// Number of lines, at most 10,000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=10_000))]
    lines: u16,
    /// Also print new lines as they arrive, from day to day
    #[arg(short, long)]
    follow: bool,
}

/// Prints lines as they arrive.
struct Follower<'a> {
    server: &'a Server,
    path: String,
    /// Position at which to go on.
    position: Option<String>,
    /// Set while the screen shows only a part of the current line.
    is_within: bool,
}

pub fn run(server: &Server, bucket: &str, args: &TailArgs) -> Result<ExitCode> {
    let path = address(bucket, &format!("{}/", args.source)).path();
    let failed = |failure: Failure| {
        let source = &args.source;
        if failure.is_not_found() {
            let text = format!("there is no log source {source} in bucket {bucket}");
            Failure::not_found(text).and("`cairn logs ls` lists them")
        } else {
            failure.of(format!("source {source}"))
        }
    };
    if args.follow {
        let first = format!("{path}?follow&lines={}", args.lines);
        let mut follower = Follower { server, path, position: None, is_within: false };
        return follower.run(first).map_err(failed);
    }
    let reply = server.send("GET", &format!("{path}?lines={}", args.lines)).map_err(failed)?;
    let mut lines = Lines::new();
    for line in BufReader::new(reply.into_reader().1).split(b'\n') {
        lines.print(&line?)?;
    }
    lines.flush()?;
    Ok(ExitCode::SUCCESS)
}

impl Follower<'_> {
    /// Follows until there is nothing more to follow.
    fn run(&mut self, first: String) -> Result<ExitCode> {
        let mut path = first;
        loop {
            match self.server.events(&path) {
                Ok(reply) => {
                    if let Some(why) = self.lines(BufReader::new(reply.into_reader().1))? {
                        return Err(Failure::new(format!("nothing more is sent: {why}")));
                    }
                }
                // An error of the first request may be due to the command.
                Err(failure) if self.position.is_none() || failure.is_refused() => {
                    return Err(failure);
                }
                Err(failure) => output::complain(&format!("{failure}: trying again")),
            }
            sleep(AGAIN);
            if let Some(position) = &self.position {
                path = format!("{}?follow&offset={}", self.path, escape(position));
            }
        }
    }

    /// Prints lines until the connection ends. Returns the reason if it is not to be made again.
    fn lines(&mut self, reader: impl BufRead) -> Result<Option<String>> {
        let mut events = Events::default();
        for line in reader.lines() {
            // The connection is lost.
            let Ok(line) = line else { return Ok(None) };
            let Some(Event { kind, id, data }) = events.line(&line) else { continue };
            match (kind.as_str(), data) {
                ("end", why) => return Ok(Some(why.unwrap_or_default())),
                ("part", Some(data)) => {
                    // The rest of the line follows.
                    let mut out = io::stdout().lock();
                    out.write_all(output::name(&data).as_bytes())?;
                    self.is_within = true;
                }
                (_, Some(data)) => {
                    output::line(data)?;
                    self.is_within = false;
                }
                (_, None) => {}
            }
            self.position = id.or(self.position.take());
        }
        if std::mem::take(&mut self.is_within) {
            // The line is sent again from its start.
            output::line("")?;
        }
        Ok(None)
    }
}
