//! `cairn rm`

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::Address;
use super::{api, pool};
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;

/// Delete objects
///
/// With -r it counts first and asks. There is no way back.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn rm photos/2024/cat.jpg
  cairn rm -r photos/2023/ --dry-run
  cairn rm -r photos/2023/ --yes")]
pub struct RmArgs {
    /// BUCKET/KEY, or with -r BUCKET/PREFIX
    #[arg(required = true)]
    target: Vec<String>,
    /// Delete everything below a prefix
    #[arg(short, long)]
    recursive: bool,
    /// Do not ask before deleting; needed with -r where there is no terminal
    #[arg(short, long)]
    yes: bool,
    /// Report what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Requests at the same time, with -r
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    #[command(flatten)]
    connection: Connection,
}

/// Remedy for the name of a folder.
const FOLDER: &str = "use -r for all below it";

pub fn run(args: &RmArgs) -> Result<ExitCode> {
    let asks = args.recursive && !args.yes && !args.dry_run;
    if asks && !io::stdin().is_terminal() {
        let text = "rm -r deletes for good: see what by --dry-run, then say --yes";
        return Err(Failure::usage(text));
    }
    let parse = |text: &String| {
        if args.recursive {
            Address::parse(text)
        } else {
            Address::parse_object(text, [", or cairn bucket rm", ", or -r for all below it"])
        }
    };
    let targets: Vec<Address> = args.target.iter().map(parse).collect::<Result<_>>()?;
    let server = args.connection.open()?;
    for target in targets {
        let failed = |failure| api::of_object(&server, &target, failure, FOLDER);
        match args.recursive {
            true => remove_below(args, &server, &target)?,
            false if args.dry_run => {
                server.send("HEAD", &target.path()).map_err(failed)?;
                output::line(format!("would delete {}", output::name(&target.to_string())))?;
            }
            false => remove(&server, &target).map_err(failed)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn remove_below(args: &RmArgs, server: &Server, target: &Address) -> Result<()> {
    if args.yes && !args.dry_run {
        return remove_all(server, target, usize::from(args.jobs));
    }
    let (mut objects, mut bytes) = (0u64, 0u64);
    api::each_object(server, target, &mut |object| {
        (objects, bytes) = (objects + 1, bytes + object.size);
        if args.dry_run {
            output::line(format!("would delete {}", output::name(&object.key)))
        } else {
            Ok(())
        }
    })?;
    let what = format!("{objects} objects, {}, below {target}", output::human_bytes(bytes));
    if args.dry_run {
        return output::line(format!("{what}: would be deleted"));
    }
    if objects == 0 {
        output::note(&format!("nothing is below {target}"));
        return Ok(());
    }
    if !asked(&what)? {
        return Err(Failure::new("nothing was deleted"));
    }
    remove_all(server, target, usize::from(args.jobs))
}

/// Asks at the terminal for a confirmation.
fn asked(what: &str) -> Result<bool> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "delete {}, for good? [y/N] ", output::name(what))?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// An object that is to be deleted.
struct Job {
    target: Address,
    size: u64,
}

fn remove_all(server: &Server, under: &Address, jobs: usize) -> Result<()> {
    let (objects, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let feed = |send: &mut dyn FnMut(Job) -> Result<()>| {
        api::each_object(server, under, &mut |object| {
            send(Job { target: under.with_key(object.key), size: object.size })
        })
    };
    let work = |Job { target, size }| match remove(server, &target) {
        // An object that was deleted meanwhile is gone as wanted.
        Err(failure) if failure.is_not_found() => Ok(()),
        Ok(()) => {
            objects.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(size, Ordering::Relaxed);
            Ok(())
        }
        failed => failed.map_err(|failure| failure.of(&target)),
    };
    pool::run(jobs, feed, work)?;
    let size = output::human_bytes(bytes.into_inner());
    output::note(&match objects.into_inner() {
        0 => format!("nothing is below {under}"),
        objects => format!("deleted {objects} objects, {size}, below {under}"),
    });
    Ok(())
}

fn remove(server: &Server, target: &Address) -> Result<()> {
    server.send("DELETE", &target.path()).map(|_| ())
}
