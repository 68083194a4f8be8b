//! Shell completions and manual pages, which the program makes from its command line.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::program::{run, said};
use super::tree::gzip;

/// A shell, and the path of its completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/cairn"),
    ("zsh", "usr/share/zsh/vendor-completions/_cairn"),
    ("fish", "usr/share/fish/vendor_completions.d/cairn.fish"),
];

/// Returns files by path. `out` is a folder for the program's output.
pub fn made(program: &Path, out: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let help = said(Command::new(program).arg("--help"))?;
    let has =
        |command: &str| help.lines().any(|line| line.split_whitespace().next() == Some(command));
    let mut files = Vec::new();
    if has("completions") {
        for (shell, path) in SHELLS {
            let text = said(Command::new(program).args(["completions", shell]))?;
            files.push((path.to_owned(), text.into_bytes()));
        }
    }
    if has("man") {
        let folder = out.join("man");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        run(Command::new(program).arg("man").arg(&folder))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("usr/share/man/man1/{name}.gz");
            files.push((path, gzip(&fs::read(entry.path())?)?));
        }
    }
    files.sort();
    Ok(files)
}
