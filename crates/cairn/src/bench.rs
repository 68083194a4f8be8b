//! `cairn bench`

use std::process::ExitCode;

pub use cairn_bench::Args;
use cairn_bench::Error;

use crate::failure::{Failure, Result};

pub fn run(args: &Args) -> Result<ExitCode> {
    match cairn_bench::run(args) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Error::Usage(text)) => Err(Failure::usage(text)),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}
