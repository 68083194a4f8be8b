//! A mount in the background: one process serves it, another one waits for it to end and takes
//! the mount point away if it died.
//!
//! ```text
//!   cairn mount ──► cairn mount --supervise ──► cairn mount --foreground
//!        ▲ "mounted", or what went wrong ┘ ▲ the same ┘
//! ```

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use super::point;
use crate::failure::{Failure, Result};
use crate::output;

/// Starts this command again, with one more option.
fn again(option: &str, stderr: Stdio) -> Result<Child> {
    let mut arguments = env::args_os();
    let program = env::current_exe()?;
    let mut command = Command::new(program);
    let own = ["--supervise", "--foreground", "-f"];
    arguments.next();
    command.args(arguments.filter(|argument| !own.iter().any(|one| argument == one)));
    command.arg(option).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    // Signals of the terminal are not for this process.
    command.process_group(0);
    Ok(command.spawn()?)
}

/// Returns the first line that a process prints; none if it ends without.
fn first_line(child: &mut Child) -> Option<String> {
    let mut line = String::new();
    let stdout = child.stdout.as_mut()?;
    BufReader::new(stdout).read_line(&mut line).ok()?;
    (!line.is_empty()).then(|| line.trim_end().to_owned())
}

/// Mounts in the background, and returns once that is done.
pub fn start() -> Result<ExitCode> {
    let mut child = again("--supervise", Stdio::piped())?;
    if let Some(line) = first_line(&mut child) {
        output::line(line)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    if let Some(stderr) = child.stderr.as_mut() {
        stderr.read_to_string(&mut text)?;
    }
    child.wait()?;
    let last = text.lines().last().unwrap_or("the mount ended without a word");
    Err(Failure::new(last.strip_prefix("cairn: ").unwrap_or(last).to_owned()))
}

/// Starts the process that serves, and cleans up when it has ended.
pub fn supervise(at: &Path, log: Option<&Path>) -> Result<ExitCode> {
    let log = match log {
        Some(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            Some(opened.map_err(|error| Failure::file(path, &error))?)
        }
        None => None,
    };
    let mut child = again("--foreground", Stdio::piped())?;
    let stderr = child.stderr.take();
    let Some(line) = first_line(&mut child) else {
        let mut text = String::new();
        if let Some(mut stderr) = stderr {
            stderr.read_to_string(&mut text)?;
        }
        child.wait()?;
        let last = text.lines().last().unwrap_or("the mount ended without a word");
        return Err(Failure::new(last.strip_prefix("cairn: ").unwrap_or(last).to_owned()));
    };
    // Log lines are always read, so that the mount never waits for them.
    thread::spawn(move || {
        let mut sink: Box<dyn std::io::Write> = match log {
            Some(file) => Box::new(file),
            None => Box::new(std::io::sink()),
        };
        if let Some(mut stderr) = stderr {
            let _ = std::io::copy(&mut stderr, &mut sink);
        }
    });
    output::line(line)?;
    // The program that started this process reads no further.
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&null).map_err(std::io::Error::from)?;
    let status = child.wait()?;
    if !status.success() {
        point::clean_up(at);
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
