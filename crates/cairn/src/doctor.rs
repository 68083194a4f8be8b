//! `cairn doctor`: names what slows a running store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use cairn_base::Role;
use cairn_base::waits;
use cairn_doctor::collect::Kernel;
use cairn_doctor::{Cluster, Metrics, Node, Pair, Report, Sample, Store, findings};

use crate::cluster::copies::Copies;
use crate::cluster::members::{self, MastersSaid, MembersShown};
use crate::cluster::reach;
use crate::connection::{Connection, Server};
use crate::failure::Result;
use crate::mount::stats;
use crate::output;

/// Find out what slows a running store
///
/// Looks at servers and at this machine for a while. Prints the findings that cost time, the most
/// costly first, with evidence and remedy, and then the limit of the rest. Run it while the store
/// is as slow as you wonder about: it measures nothing on its own.
///
/// Servers are asked for /metrics: they answer root, and requests from their own machine. Facts of
/// the kernel (quotas, threads, disks, losses) are collected on this machine only: run it where the
/// server is. Costs are estimates of the share of time or throughput.
#[derive(clap::Args)]
#[command(after_help = "Environment:
  CAIRN_KEY and CAIRN_SECRET, or CAIRN_TOKEN, of root: for servers on other machines

Exit codes: 0 nothing was found, 1 something was, or no server could be looked at.

Examples:
  cairn doctor
  cairn doctor http://10.0.0.5:8080 http://10.0.0.6:8080 --seconds 30
  cairn doctor /mnt/cairn http://127.0.0.1:8080
  cairn doctor /srv/cairn-gateway --json | jq '.findings[0]'")]
pub struct DoctorArgs {
    /// URLs of HTTP doors, or directories: of a node (for all gateways of its cluster), of a server
    /// on this machine, or of a mount [default: http://127.0.0.1:8080]
    #[arg(value_name = "URL-OR-DIR")]
    targets: Vec<String>,
    /// Seconds to observe
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Target of the examination.
struct Patient {
    servers: Vec<(String, Server)>,
    mounts: Vec<PathBuf>,
    /// Directory of a node, through which its master is asked.
    node: Option<String>,
    kernel: Kernel,
    begun: Instant,
}

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let patient = Patient::find(args)?;
    let before = patient.look();
    watch(&patient.names(), args.seconds);
    let after = patient.look();
    let report = findings::report(&Pair { before: &before, after: &after });
    let seen = after.nodes.iter().any(|node| node.metrics.is_ok());
    if args.json {
        output::json(&report)?
    } else {
        print(&report, seen)?
    }
    let is_well = report.findings.is_empty() && seen;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Waits, and says so on stderr; a terminal shows the seconds that are left.
fn watch(names: &str, seconds: u64) {
    output::note(&format!("watching {names} for {seconds} s"));
    let bar = output::count_bar(seconds, "seconds");
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        bar.inc(1);
    }
    bar.finish_and_clear();
}

impl Patient {
    /// Returns the targets, as they are named to people.
    fn names(&self) -> String {
        let servers = self.servers.iter().map(|(url, _)| url.clone());
        let mounts = self.mounts.iter().map(|mount| mount.display().to_string());
        servers.chain(mounts).collect::<Vec<_>>().join(", ")
    }

    fn find(args: &DoctorArgs) -> Result<Patient> {
        let mut urls: Vec<Option<String>> = Vec::new();
        let (mut node, mut mounts) = (None, Vec::new());
        for target in &args.targets {
            if target.contains("://") {
                urls.push(Some(target.trim_end_matches('/').to_owned()));
                continue;
            }
            if stats::read(Path::new(target)).is_ok() {
                mounts.push(PathBuf::from(target));
                continue;
            }
            match gateways(Path::new(target)) {
                Ok(found) => {
                    node = Some(target.clone());
                    urls.extend(found.into_iter().map(Some));
                }
                Err(failure) => urls.push(Some(door_of(target).ok_or(failure)?)),
            }
        }
        if args.targets.is_empty() {
            urls.push(None);
        }
        let servers = urls.into_iter().map(|url| {
            let connection = args.connection.clone().at(url);
            let known = connection.known()?;
            Ok((known.base, connection.open_for(waits::DOCTOR)?))
        });
        let servers = servers.collect::<Result<_>>()?;
        Ok(Patient { servers, mounts, node, kernel: Kernel::default(), begun: Instant::now() })
    }

    fn look(&self) -> Sample {
        let servers = self.servers.iter().map(|(url, server)| node_of(url, server));
        let mounts = self.mounts.iter().map(|mount| node_of_mount(mount));
        Sample {
            nodes: servers.chain(mounts).collect(),
            processes: self.kernel.processes(),
            host: self.kernel.host(),
            cluster: self.node.as_ref().and_then(|dir| cluster(Path::new(dir)).ok()),
            at: self.begun.elapsed(),
        }
    }
}

/// Returns the HTTP doors of all gateways of the cluster to which a directory belongs.
fn gateways(dir: &Path) -> Result<Vec<String>> {
    let status = reach::status(dir)?;
    let gateways = status.map.nodes.values().filter(|node| node.pin.roles.contains(Role::Gateway));
    Ok(gateways.filter(|node| !node.url.is_empty()).map(|node| node.url.clone()).collect())
}

/// Returns the HTTP door of the server on this machine that uses this directory, by its command
/// line.
fn door_of(dir: &str) -> Option<String> {
    const DEFAULT: &str = "127.0.0.1:8080";
    let wanted = std::fs::canonicalize(dir).ok()?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.into_iter().find_map(|entry| {
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let words: Vec<&str> = command.split('\0').collect();
        let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
        let is_it =
            |word: &&str| std::fs::canonicalize(cwd.join(word)).is_ok_and(|at| at == wanted);
        if words.get(1) != Some(&"server") || !words.iter().skip(2).any(is_it) {
            return None;
        }
        let given = words.iter().position(|word| *word == "--http");
        let address = given.and_then(|at| words.get(at + 1)).copied().unwrap_or(DEFAULT);
        let scheme = if words.contains(&"--tls-cert") { "https" } else { "http" };
        (!address.ends_with(":0")).then(|| format!("{scheme}://{address}"))
    })
}

fn node_of(url: &str, server: &Server) -> Node {
    let said = server.send("GET", "/metrics").and_then(|reply| {
        let ahead = clock_ahead(reply.header("date"));
        Ok((reply.text()?, ahead))
    });
    match said {
        Ok((text, clock_ahead)) => {
            Node { url: url.to_owned(), metrics: Ok(Metrics::parse(&text)), clock_ahead }
        }
        Err(failure) => {
            Node { url: url.to_owned(), metrics: Err(failure.to_string()), clock_ahead: None }
        }
    }
}

fn node_of_mount(mount: &Path) -> Node {
    let said = stats::read(mount).map_err(|failure| failure.to_string());
    let metrics = said.map(|text| Metrics::of_mount(&text));
    Node { url: mount.display().to_string(), metrics, clock_ahead: None }
}

/// Returns the seconds by which a header `Date` is ahead of now. The header has whole seconds,
/// rounded down.
fn clock_ahead(date: &str) -> Option<f64> {
    let seconds = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
    };
    let theirs = seconds(httpdate::parse_http_date(date).ok()?)?;
    Some(theirs + 0.5 - seconds(SystemTime::now())?)
}

fn cluster(dir: &Path) -> Result<Cluster> {
    let status = reach::status(dir)?;
    let map = &status.map;
    let chunkservers =
        map.nodes.iter().filter(|(_, node)| node.pin.roles.contains(Role::Chunkserver));
    let stores = chunkservers.map(|(id, node)| {
        let said = status.nodes.iter().find(|one| one.node == *id);
        let store = said.map(|one| one.store).unwrap_or_default();
        Store {
            node: id.to_string(),
            up: node.is_up,
            live_bytes: store.live_bytes,
            free_bytes: store.free_bytes,
            weight: node.weight,
            failure: said.and_then(|one| one.failure.clone()),
        }
    });
    let degraded = map.groups.values().filter(|group| {
        group.in_sync().filter(|node| map.is_up(*node)).count() < group.redundancy.members()
    });
    let said = members::ask(dir, Some(map)).ok();
    let copies = said.as_ref().and_then(|said| Copies::of(dir, map, said).ok());
    let shown = said.as_ref().and_then(MastersSaid::members);
    let (stalls, damage) = (shown.map(MembersShown::stalls), shown.map(MembersShown::damage));
    Ok(Cluster {
        stores: stores.collect(),
        degraded_groups: degraded.count() as u64,
        replicas: map.most_replicas().into(),
        metadata_copies: copies.and_then(Copies::number),
        stalls: stalls.unwrap_or_default(),
        damage: damage.unwrap_or_default(),
    })
}

fn print(report: &Report, seen: bool) -> Result<()> {
    let Report { seconds, requests, findings, limit, blind } = report;
    if seen {
        output::line(format!("{requests:.0} requests in {seconds:.0} s"))?;
    } else {
        output::line("NO SERVER COULD BE LOOKED AT: the rest is of this machine alone")?;
        blind.iter().try_for_each(|what| output::line(format!("not seen: {what}")))?;
    }
    for (number, finding) in findings.iter().enumerate() {
        let (number, cost) = (number + 1, finding.cost_percent);
        output::line(format!("\n{number}. {} (costs about {cost:.0} %)", finding.what))?;
        for evidence in &finding.evidence {
            output::line(format!("   seen: {evidence}"))?;
        }
        output::line(format!("   do:   {}", finding.remedy))?;
    }
    if findings.is_empty() && seen {
        output::line("nothing is wrong")?;
    }
    output::line(format!("\nlimit: {}", limit.what))?;
    if seen {
        blind.iter().try_for_each(|what| output::line(format!("not seen: {what}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_to_the_second() {
        let now = SystemTime::now();
        let ahead = |time| clock_ahead(&httpdate::fmt_http_date(time)).unwrap();
        assert!(ahead(now).abs() <= 1.5);
        assert!((ahead(now + Duration::from_secs(90)) - 90.0).abs() <= 1.5);
        assert_eq!(clock_ahead("yesterday"), None);
    }
}
