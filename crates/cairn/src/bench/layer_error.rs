//! The error of a layer.

use std::fmt::Display;

use cairn_bench::Error;

pub fn failed(error: impl Display) -> Error {
    Error::failed(error.to_string())
}
