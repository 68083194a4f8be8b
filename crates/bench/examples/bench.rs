//! `cairn bench` without the rest of `cairn`: quick to build where only that is wanted.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: cairn_bench::Command,
}

fn main() -> ExitCode {
    match cairn_bench::run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
