//! Output of many lines on stdout.

use std::io::{self, BufWriter, IsTerminal, Write};

use crate::failure::Result;
use crate::output;

/// Prints many lines: on a terminal each at once, and escaped.
pub struct Lines {
    out: BufWriter<io::Stdout>,
    is_terminal: bool,
}

impl Lines {
    pub fn new() -> Lines {
        let out = io::stdout();
        Lines { is_terminal: out.is_terminal(), out: BufWriter::with_capacity(256 << 10, out) }
    }

    /// Prints a line, given without its end.
    pub fn print(&mut self, line: &[u8]) -> Result<()> {
        if self.is_terminal {
            return output::line(String::from_utf8_lossy(line));
        }
        self.out.write_all(line)?;
        Ok(self.out.write_all(b"\n")?)
    }

    pub fn flush(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}
