//! `cairn top`: who asks servers for what just now.
//!
//! ```text
//!   cairn top ── GET /admin/traffic ──► each server: the last 5 seconds, and what waits
//!      └── told: sums over all servers ──► screen: tables, again and again
//! ```

mod report;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use cairn_base::waits;

use crate::connection::{Connection, Server};
use crate::failure::Result;
use crate::output;
use report::TrafficReport;

/// Interval of the requests for a first answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Show the requests of the last seconds: by door, user, bucket and object
///
/// Servers and gateways count requests at their HTTP, S3, website and console doors while somebody
/// asks, in periods of 5 seconds. The table shows the last period that is over, the slowest
/// requests of it, and the requests that wait now. Only root may. Requests of mounts and of NFS are
/// shown while they wait, and are not counted.
///
/// Where stdout is no terminal one table is printed, as with --once.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn top
  cairn top http://10.0.0.5:8080 http://10.0.0.6:8080
  cairn top --once --json | jq '.objects[0]'")]
pub struct TopArgs {
    /// URLs of the HTTP doors of servers or gateways, which are shown as one
    #[arg(value_name = "URL")]
    targets: Vec<String>,
    /// Print one period, and end
    #[arg(long)]
    once: bool,
    /// Print one period as JSON
    #[arg(long)]
    json: bool,
    /// Lines of each table
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=50))]
    rows: u16,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &TopArgs) -> Result<ExitCode> {
    let servers = servers(args)?;
    let rows = usize::from(args.rows);
    // Counting begins with the first request to a server.
    let mut told = ask(&servers)?;
    if told.seconds == 0.0 {
        output::note("counting begins now: first table in 5 s");
    }
    while told.seconds == 0.0 {
        sleep(AGAIN);
        told = ask(&servers)?;
    }
    if args.json {
        output::json(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.once || !io::stdout().is_terminal() {
        screen::print(&told, rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        screen::clear()?;
        screen::print(&told, rows)?;
        sleep(Duration::from_secs(2));
        told = ask(&servers)?;
    }
}

fn servers(args: &TopArgs) -> Result<Vec<Server>> {
    let targets = args.targets.iter().map(|url| Some(url.trim_end_matches('/').to_owned()));
    let targets: Vec<Option<String>> =
        if args.targets.is_empty() { vec![None] } else { targets.collect() };
    let open = |url| args.connection.clone().at(url).open_for(waits::DOCTOR);
    targets.into_iter().map(open).collect()
}

fn ask(servers: &[Server]) -> Result<TrafficReport> {
    let mut all: Option<TrafficReport> = None;
    for server in servers {
        let told: TrafficReport = server.send("GET", "/admin/traffic")?.json()?;
        all = Some(match all {
            None => told,
            Some(all) => all.and(told),
        });
    }
    Ok(all.unwrap_or_default())
}
