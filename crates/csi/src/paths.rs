//! Paths that a caller sends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tonic::Status;

/// The longest path, bytes.
const PATH_BYTES: usize = 4095;

/// A path as the kernel shows it in its list of mounts: links above it are followed, and it is no
/// link itself. It need not be there, but the directory above it must be.
///
/// # Errors
/// `InvalidArgument` for what is not an absolute path, or one with `..`.
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
    // A mount whose process has died answers with an error, and is no link.
    let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    match is_link {
        true => Err(bad("it is a symbolic link")),
        false => Ok(path),
    }
}

/// A path in the list of mounts, in which the kernel writes some bytes as three octal digits.
pub fn unescaped(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    Path::new(std::ffi::OsStr::from_bytes(&plain)).to_owned()
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

    #[test]
    fn the_kernel_escapes_some_bytes() {
        assert_eq!(unescaped("/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped("/ü\\04"), Path::new("/ü\\04"));
    }
}
