use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Server, directory, run};

/// A command as a shell with an open mask starts it.
fn openly(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 022; exec \"$0\" \"$@\""]).arg(command.get_program());
    shell.args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell.env("PATH", "/usr/bin:/bin");
    shell
}

/// Everything below a path, with its mode.
fn modes(at: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.clone(), fs::metadata(&path).unwrap().permissions().mode() & 0o777));
        if path.is_dir() {
            found.extend(modes(&path));
        }
    }
    found
}

/// Every command that writes a store: a server, a cluster's first master, and tools without a
/// server.
#[test]
fn whichever_command_writes_them() {
    let (directory, store) = directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/a", b"private"));
    server.ok(&["meta", "dump", &path("dump")]);
    assert_eq!(server.stop(), 0);
    fs::remove_dir_all(store.join("meta")).unwrap();
    let store = store.to_str().unwrap();
    let init = path("master");
    let commands: [&[&str]; 5] = [
        &["meta", "load", &path("dump"), store],
        &["key", "create", "root", "--dir", store],
        &["scrub", store],
        &["meta", "dump", store, &path("second")],
        &["cluster", "init", &init, "--address", "127.0.0.1:7400"],
    ];
    for command in commands {
        let (code, _, stderr) = run(&mut openly(&crate::support::cairn(command)));
        assert_eq!(code, 0, "{command:?}: {stderr}");
    }
    let all: Vec<_> = [store, &init].iter().flat_map(|at| modes(Path::new(at))).collect();
    assert!(all.iter().any(|(path, _)| path.ends_with("meta/rows.redb")), "{all:?}");
    for (path, mode) in all {
        assert_eq!(mode & 0o077, 0, "{}: {mode:04o}", path.display());
    }
    assert_eq!(fs::metadata(path("second")).unwrap().permissions().mode() & 0o077, 0);
}

#[test]
fn and_what_is_fetched_is_for_the_caller() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/dir/a", b"x"));
    let target = directory.path().join("got");
    let get = server.client(&["get", "-r", "photos/", target.to_str().unwrap()]);
    let (code, _, stderr) = run(&mut openly(&get));
    assert_eq!(code, 0, "{stderr}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&target.join("dir")), mode(&target.join("dir/a"))), (0o755, 0o644));
}
