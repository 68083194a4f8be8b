//! The command line as other programs read it: completions for shells, and pages for `man`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::failure::{Failure, Result};

/// Print completions for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn completions bash > /usr/share/bash-completion/completions/cairn
  cairn completions zsh > /usr/share/zsh/vendor-completions/_cairn
  cairn completions fish > /usr/share/fish/vendor_completions.d/cairn.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write pages for man to a directory: one for each command
#[derive(clap::Args)]
#[command(after_help = "Example:\n  cairn man /usr/share/man/man1")]
pub struct ManArgs {
    /// The directory, which must exist
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs, mut whole: clap::Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut whole, "cairn", &mut text);
    io::Write::write_all(&mut io::stdout().lock(), &text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn man(args: &ManArgs, whole: clap::Command) -> Result<ExitCode> {
    let fail = |error| Failure::file(&args.dir, &error);
    fs::create_dir_all(&args.dir).map_err(fail)?;
    clap_mangen::generate_to(whole, &args.dir).map_err(fail)?;
    Ok(ExitCode::SUCCESS)
}
