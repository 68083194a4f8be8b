//! What commands print: lines and columns on stdout, progress on stderr if that is a terminal.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Result};

/// Prints one line at once, also where stdout is a pipe.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).map_err(|error| Failure::new(error.to_string()))?)
}

/// Prints rows in columns, as wide as they must be; nothing if there are none.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let header = header.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let mut widths = vec![0; rows[0].len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        line(cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// A bar of `total` bytes.
pub fn bytes_bar(total: u64, what: &str) -> ProgressBar {
    let template = "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar(total, what, template)
}

/// A bar of `total` things; 0 if their number is not known.
pub fn count_bar(total: u64, what: &str) -> ProgressBar {
    match total {
        0 => bar(0, what, "{msg} {spinner} {human_pos}"),
        _ => bar(total, what, "{msg} [{wide_bar}] {human_pos}/{human_len} {eta}"),
    }
}

fn bar(total: u64, what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar
}

/// Bytes as people read them.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Says something on stderr, on one line. Where stderr takes nothing (a full disk), nobody hears.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "cairn: {}", text.replace('\n', " "));
}
