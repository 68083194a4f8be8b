//! Pictures of the console, made by the browser that tests use.

use std::io;
use std::path::Path;
use std::process::Command;

/// Builds the program and makes the pictures in `into`: of every screen, or those that documents
/// show.
///
/// # Errors
/// The browser is not installed, or a step fails.
pub fn make(root: &Path, into: &Path, of_documents: bool) -> io::Result<()> {
    let python = root.join("target/venv/bin/python");
    if !python.exists() {
        return Err(io::Error::other("there is no target/venv: run tests/install"));
    }
    let mut build = Command::new("cargo");
    run(build.args(["build", "-p", "cairn"]).current_dir(root), "cargo build")?;
    let mut shoot = Command::new(python);
    shoot.args(["-B", "tests/console/screenshots.py"]).arg(into).current_dir(root);
    shoot.args(of_documents.then_some("--docs"));
    shoot.env("PYTHONPATH", "tests").env("CAIRN_BIN", root.join("target/debug/cairn"));
    run(&mut shoot, "tests/console/screenshots.py")
}

fn run(command: &mut Command, what: &str) -> io::Result<()> {
    let failed = |why: String| io::Error::other(format!("{what}: {why}"));
    let status = command.status().map_err(|error| failed(error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
}
