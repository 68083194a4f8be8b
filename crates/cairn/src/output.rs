//! Output of commands: lines and columns on stdout, progress on stderr if that is a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Result};

/// Prints one line at once, even if stdout is a pipe.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() {
        escaped(text.as_ref(), |c| c == '\n')
    } else {
        Cow::Borrowed(text.as_ref())
    };
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Returns a name that another user has chosen, in a form that is safe in a line: on a terminal it
/// begins no line of its own.
pub fn name(text: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() { escaped(text, |_| false) } else { Cow::Borrowed(text) }
}

/// Escapes characters that a terminal would interpret, unless they are `kept`. The escapes are
/// those of JSON, so that JSON stays valid.
fn escaped(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |c: char| (c.is_control() || is_turn(c)) && !kept(c);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_bad(c) { plain.push_str(&format!("\\u{:04x}", u32::from(c))) } else { plain.push(c) }
    }
    Cow::Owned(plain)
}

/// Returns true if a character turns the direction of the text around it.
fn is_turn(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).map_err(|error| Failure::new(error.to_string()))?)
}

/// Prints rows in columns that are as wide as necessary; nothing if there are none.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let header = header.iter().map(|&name| name.to_owned()).collect();
    columns(std::iter::once(header).chain(rows).collect())
}

/// Prints rows in columns that are as wide as necessary, without a header.
pub fn columns(rows: Vec<Vec<String>>) -> Result<()> {
    let mut widths = vec![0; rows.first().map_or(0, Vec::len)];
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

/// Makes a bar of `total` bytes.
pub fn bytes_bar(total: u64, what: &str) -> ProgressBar {
    let template = "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar(total, what, template)
}

/// Makes a bar of `total` things; 0 if their number is unknown.
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

/// Shows a number of bytes for people.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Prints a line on stderr. If stderr fails (a full disk), the text is lost.
pub fn complain(text: &str) {
    let text = text.replace('\n', " ");
    let text = if io::stderr().is_terminal() {
        escaped(&text, |_| false)
    } else {
        Cow::Borrowed(text.as_str())
    };
    let _ = writeln!(io::stderr(), "cairn: {text}");
}

/// Says on stderr what a command did. Like [`complain`], but nothing is wrong.
pub fn note(text: &str) {
    let text =
        if io::stderr().is_terminal() { escaped(text, |_| false) } else { Cow::Borrowed(text) };
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints on stderr why a command failed, on one line.
pub fn report(failure: &Failure) -> ExitCode {
    if failure.code() != 0 {
        complain(&failure.to_string());
    }
    ExitCode::from(failure.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_but_text() {
        let all = |text| escaped(text, |_| false).into_owned();
        assert_eq!(all("grün 日本 a\\b"), "grün 日本 a\\b");
        assert_eq!(
            all("a\x1b[2J\x07\nFAKE\t\u{9b}\u{7f}"),
            "a\\u001b[2J\\u0007\\u000aFAKE\\u0009\\u009b\\u007f"
        );
        assert_eq!(all("gpj\u{202e}.exe"), "gpj\\u202e.exe");
        assert_eq!(escaped("a\nb\r", |c| c == '\n'), "a\nb\\u000d");
    }
}
