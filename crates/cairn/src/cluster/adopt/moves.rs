//! Renames by which the blocks of a server become those of a chunkserver, and back. Each of them is
//! there or not, so all can be repeated after an interruption.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::Role;

use crate::dir::directory_of_role;
use crate::failure::{Failure, Result};

/// Names that move, in this order and back in the opposite one. Without `format`, programs that
/// know nothing of adoptions refuse the directory as that of a server.
const MOVED: [&str; 3] = ["format", "blocks", "scrub"];
/// A file that need not be there.
const OPTIONAL: &str = "scrub";

/// Moves to the chunkserver what is not there yet.
pub fn forward(dir: &Path) -> Result<()> {
    let disk = disk(dir);
    MOVED.iter().try_for_each(|name| shift(dir, &disk, name))
}

/// Moves to the server what is not there yet.
pub fn back(dir: &Path) -> Result<()> {
    let disk = disk(dir);
    MOVED.iter().rev().try_for_each(|name| shift(&disk, dir, name))
}

/// Checks that what is to be moved back can be renamed. Changes nothing.
///
/// # Errors
/// The disk of the chunkserver was put on another disk since.
pub fn require_one_disk(dir: &Path) -> Result<()> {
    let disk = disk(dir);
    let own = fs::metadata(dir).map_err(|error| Failure::file(dir, &error))?.dev();
    for path in MOVED.map(|name| disk.join(name)) {
        if !is_there(&path)? {
            continue;
        }
        let found = path.symlink_metadata().map_err(|error| Failure::file(&path, &error))?;
        if found.is_symlink() || found.dev() != own {
            let (path, disk, dir) = (path.display(), disk.display(), dir.display());
            return Err(Failure::new(format!(
                "{path}: is a link or on another disk than {dir}, and cannot be renamed: with the \
                 machine stopped, copy {disk} back to the disk of {dir} first. Nothing was changed"
            )));
        }
    }
    Ok(())
}

fn disk(dir: &Path) -> PathBuf {
    dir.join(directory_of_role(Role::Chunkserver))
}

fn shift(from: &Path, to: &Path, name: &str) -> Result<()> {
    let (source, target) = (from.join(name), to.join(name));
    match (is_there(&source)?, is_there(&target)?) {
        (true, false) => {
            fs::rename(&source, &target).map_err(|error| Failure::file(&source, &error))?;
            sync_both(from, to)
        }
        (true, true) => Err(Failure::new(format!(
            "{} and {} are both there: one of them is to be moved away",
            source.display(),
            target.display()
        ))),
        // A crash may have come before it was durable.
        (false, true) => sync_both(from, to),
        (false, false) if name == OPTIONAL => Ok(()),
        (false, false) => {
            let text = "is gone: restore the store from a backup (cairn restore)";
            Err(Failure::damage(format!("{}: {text}", source.display())))
        }
    }
}

fn is_there(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(Failure::file(path, &error)),
    }
}

/// Makes a rename durable.
fn sync_both(from: &Path, to: &Path) -> Result<()> {
    [to, from].into_iter().try_for_each(|directory| {
        let synced = File::open(directory).and_then(|opened| opened.sync_all());
        synced.map_err(|error| Failure::file(directory, &error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names below a directory, with the bytes of files.
    fn tree(dir: &Path) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        for place in [dir.to_path_buf(), dir.join("disk")] {
            for entry in fs::read_dir(&place).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.push((name, fs::read(&path).unwrap_or_default()));
            }
        }
        found.sort();
        found
    }

    fn server(with_scrub: bool) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        fs::write(dir.join("format"), "format").unwrap();
        fs::create_dir(dir.join("blocks")).unwrap();
        fs::create_dir(dir.join("disk")).unwrap();
        if with_scrub {
            fs::write(dir.join("scrub"), "scrub").unwrap();
        }
        place
    }

    /// A crash after any of the renames: both ways lead to their ends.
    #[test]
    fn interrupted_moves_go_on_and_go_back() {
        for with_scrub in [false, true] {
            let place = server(with_scrub);
            let before = tree(place.path());
            forward(place.path()).unwrap();
            let after = tree(place.path());
            assert!(after.iter().any(|(name, bytes)| name == "disk/format" && bytes == b"format"));
            for done in 0..=MOVED.len() {
                for is_forward in [false, true] {
                    let place = server(with_scrub);
                    let dir = place.path();
                    for name in &MOVED[..done] {
                        shift(dir, &dir.join("disk"), name).unwrap();
                    }
                    let (end, expected): (Result<()>, _) =
                        if is_forward { (forward(dir), &after) } else { (back(dir), &before) };
                    end.unwrap();
                    assert_eq!(&tree(dir), expected, "{done}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_moved_over_anything_or_made_up() {
        let place = server(true);
        let dir = place.path();
        fs::create_dir(dir.join("disk/blocks")).unwrap();
        assert!(forward(dir).unwrap_err().to_string().contains("both there"));
        fs::remove_dir(dir.join("blocks")).unwrap();
        fs::remove_dir(dir.join("disk/blocks")).unwrap();
        assert!(forward(dir).unwrap_err().is_damage());
    }

    #[test]
    fn blocks_that_were_put_elsewhere_are_not_moved_back() {
        let place = server(true);
        let dir = place.path();
        require_one_disk(dir).unwrap();
        forward(dir).unwrap();
        require_one_disk(dir).unwrap();
        let before = tree(dir);
        fs::rename(dir.join("disk/blocks"), dir.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join("disk/blocks")).unwrap();
        let refused = require_one_disk(dir).unwrap_err().to_string();
        assert!(refused.contains("disk/blocks") && refused.contains("copy"), "{refused}");
        fs::remove_file(dir.join("disk/blocks")).unwrap();
        fs::rename(dir.join("elsewhere"), dir.join("disk/blocks")).unwrap();
        require_one_disk(dir).unwrap();
        assert_eq!(tree(dir), before);
    }
}
