//! The file `adoption.toml`: how far a server's directory is on its way to be the first machine of
//! a cluster, or back. It is there until the adoption is undone or finalized.
//!
//! ```text
//!   none ──► preparing ──► moving ──► adopted ──► finalizing ──► none: a machine
//!               │            │           │
//!               └────────────┴───────────┴──► undoing ──► none: a server
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::names::ADOPTION_FILE;
use super::settings_file;
use crate::failure::{Failure, Result};

const VERSION: u32 = 1;
/// Name of the file while it is being written.
const NEW_NAME: &str = "adoption.new";

/// The last step that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdoptionStep {
    /// The parts of the machine are made beside the server, of which nothing changes.
    Preparing,
    /// The parts are whole. Blocks become those of the machine, by renames.
    Moving,
    /// The machine can run. The metadata of the server, and all blocks they name, are there too.
    Adopted,
    /// The blocks become those of the server again.
    Undoing,
    /// Files that only the server used are removed.
    Finalizing,
}

/// An adoption, in the form of its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adoption {
    version: u32,
    pub step: AdoptionStep,
    /// Name or address of the machine, as `cairn node` has it.
    pub host: String,
    /// Port of its master.
    pub port: u16,
    /// Number of replicas of each block in the cluster.
    pub replicas: u8,
}

impl AdoptionStep {
    /// Returns true if a machine in this step may run.
    pub fn is_of_machine(self) -> bool {
        matches!(self, AdoptionStep::Adopted | AdoptionStep::Finalizing)
    }
}

impl Adoption {
    pub fn new(host: &str, port: u16, replicas: u8) -> Adoption {
        let (version, step) = (VERSION, AdoptionStep::Preparing);
        Adoption { version, step, host: host.to_owned(), port, replicas }
    }

    /// Reads the file of a directory; `None` if no adoption was begun there.
    ///
    /// # Errors
    /// It cannot be read, or is of a newer version.
    pub fn read(dir: &Path) -> Result<Option<Adoption>> {
        settings_file::read(&dir.join(ADOPTION_FILE), VERSION..=VERSION)
    }

    /// Checks, under the lock of a directory, that its adoption still is what was read before.
    ///
    /// # Errors
    /// Another command has changed it meanwhile.
    pub fn require_unchanged(dir: &Path, before: Option<&Adoption>) -> Result<()> {
        if Adoption::read(dir)?.as_ref() == before {
            return Ok(());
        }
        let text = "another command has changed how far its adoption is: run this again";
        Err(Failure::new(format!("{}: {text}", dir.display())))
    }

    /// Writes the file with another step, durably. It belongs to the owner of the directory.
    pub fn enter(&mut self, dir: &Path, step: AdoptionStep) -> Result<()> {
        self.step = step;
        let text = toml::to_string(self).map_err(|error| Failure::new(error.to_string()))?;
        let replaced = settings_file::replace(dir, ADOPTION_FILE, NEW_NAME, &text);
        replaced.map_err(|error| Failure::file(&dir.join(ADOPTION_FILE), &error))
    }

    /// Removes the file, durably: the adoption has come to an end.
    pub fn end(dir: &Path) -> Result<()> {
        let path = dir.join(ADOPTION_FILE);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => File::open(dir).and_then(|dir| dir.sync_all()),
        };
        removed.map_err(|error| Failure::file(&path, &error))
    }
}

/// Returns true if `disk` is that of a machine whose adoption may be undone: all blocks that were
/// there before stay. An error counts as that.
pub fn may_be_undone(disk: &Path) -> bool {
    let Ok(disk) = std::path::absolute(disk) else { return true };
    let Some(machine) = disk.parent() else { return false };
    // Undoing needs them too, and finalizing ends this when the file goes.
    machine.join(ADOPTION_FILE).try_exists().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        assert_eq!(Adoption::read(dir).unwrap(), None);
        let mut adoption = Adoption::new("10.0.0.1", 7400, 3);
        for step in [
            AdoptionStep::Preparing,
            AdoptionStep::Moving,
            AdoptionStep::Adopted,
            AdoptionStep::Undoing,
            AdoptionStep::Finalizing,
        ] {
            adoption.enter(dir, step).unwrap();
            let read = Adoption::read(dir).unwrap().unwrap();
            assert_eq!((read.step, &read), (step, &adoption));
            assert!(may_be_undone(&dir.join("disk")));
        }
        let text = fs::read_to_string(dir.join(ADOPTION_FILE)).unwrap();
        for more in ["", "\nlater = 1\n"] {
            let newer = text.replace("version = 1", "version = 2") + more;
            fs::write(dir.join(ADOPTION_FILE), newer).unwrap();
            let refused = Adoption::read(dir).unwrap_err().to_string();
            assert!(refused.contains("version 2, this cairn knows 1"), "{refused}");
        }
        fs::write(dir.join(ADOPTION_FILE), text + "\nlater = 1\n").unwrap();
        assert!(Adoption::read(dir).unwrap_err().to_string().contains("later"));
        Adoption::end(dir).unwrap();
        Adoption::end(dir).unwrap();
        assert!(!may_be_undone(&dir.join("disk")));
    }

    #[test]
    fn a_step_that_another_command_changed_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        Adoption::require_unchanged(dir, None).unwrap();
        let mut adoption = Adoption::new("10.0.0.1", 7400, 3);
        adoption.enter(dir, AdoptionStep::Adopted).unwrap();
        Adoption::require_unchanged(dir, Some(&adoption)).unwrap();
        assert!(Adoption::require_unchanged(dir, None).is_err());
        let before = adoption.clone();
        adoption.enter(dir, AdoptionStep::Finalizing).unwrap();
        assert!(Adoption::require_unchanged(dir, Some(&before)).is_err());
        Adoption::end(dir).unwrap();
        assert!(Adoption::require_unchanged(dir, Some(&adoption)).is_err());
    }
}
