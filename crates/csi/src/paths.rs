//! Paths that a caller sends.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tonic::Status;

use crate::mounts;

/// Longest path, bytes.
const PATH_BYTES: usize = 4095;

/// Returns a path as the kernel shows it in its list of mounts: links above it are followed, and it
/// is no link itself. It need not exist, but the directory above it must. This may wait for a disk.
///
/// # Errors
/// `InvalidArgument` for a path that is not absolute, or contains `..`.
pub fn checked(text: &str, what: &str) -> Result<PathBuf, Status> {
    let bad = |why: &str| Status::invalid_argument(format!("{what} {text:?}: {why}"));
    if text.is_empty() {
        return Err(Status::invalid_argument(format!("{what} is missing")));
    }
    let Some(below) = text.strip_prefix('/') else { return Err(bad("use an absolute path")) };
    let below = below.strip_suffix('/').unwrap_or(below);
    if text.len() > PATH_BYTES || text.contains('\0') {
        return Err(bad("it is too long, or has a NUL"));
    }
    if below.split('/').any(|name| matches!(name, "" | "." | "..")) {
        return Err(bad("use names, without . and .. and double slashes"));
    }
    let path = Path::new("/").join(below);
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(bad("it is the root"));
    };
    let above = above.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Status::not_found(format!("{what} {text:?}: {error}")),
        _ => Status::internal(format!("{what} {text:?}: {error}")),
    })?;
    let path = above.join(name);
    // A mount point is no link, and is not examined: its server may be away.
    let is_link = || fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    if mounts::at(&path)?.is_none() && is_link() {
        Err(bad("it is a symbolic link"))
    } else {
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_a_plain_absolute_path_is_taken() {
        for bad in
            ["", "a", "./a", "/", "//", "/tmp/../etc", "/tmp/./a", "/tmp//a", "/tmp/a\0b", ".."]
        {
            let code = checked(bad, "path").unwrap_err().code();
            assert_eq!(code, tonic::Code::InvalidArgument, "{bad:?}");
        }
        assert_eq!(checked("/nonexistent/a", "path").unwrap_err().code(), tonic::Code::NotFound);
    }

    #[test]
    fn links_are_followed_above_and_refused_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("real")).unwrap();
        symlink(real.join("real"), real.join("link")).unwrap();
        let shown = |name: &str| real.join(name).to_str().unwrap().to_owned();
        assert_eq!(checked(&shown("link/target/"), "path").unwrap(), real.join("real/target"));
        assert!(checked(&shown("link"), "path").is_err());
    }
}
