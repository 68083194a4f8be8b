//! The directory of a run, and the program of Cairn.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use tokio_rustls::TlsConnector;

use super::super::arguments::ReportsArgs;
use super::running::RunningProcesses;
use super::system::{program, run};
use crate::client::{Tls, connector};
use crate::error::{Error, Result};
use crate::fs::Scratch;

/// Access key of root in all stores that are started; their secret is a new one.
const KEY: &str = "CAIRNBENCHREPORTS001";
const SECRET_BYTES: usize = 20;

pub struct Lab<'a> {
    pub args: &'a ReportsArgs,
    /// Trusts any certificate.
    pub connector: TlsConnector,
    pub secret: String,
    work: Scratch,
    cairn: PathBuf,
    /// Processes that ended on their own, and how.
    pub fallen: Rc<RefCell<Vec<String>>>,
    pub running: RunningProcesses,
    names: Cell<u32>,
}

impl<'a> Lab<'a> {
    /// Makes the directory of a run, with room for `needed` bytes.
    pub fn new(args: &'a ReportsArgs, needed: u64) -> Result<Lab<'a>> {
        let cairn = program(args.cairn.as_deref())?;
        let remedy = "free some, give another --dir, or smaller --object, --file or --seconds";
        let work = Scratch::with_remedy(&args.dir, needed, remedy)?;
        let mut random = [0; SECRET_BYTES];
        let urandom = Path::new("/dev/urandom");
        let read = fs::File::open(urandom).and_then(|mut file| file.read_exact(&mut random));
        read.map_err(|error| Error::file(urandom, error))?;
        Ok(Lab {
            args,
            connector: connector(&Tls::any_certificate())?,
            secret: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            work,
            cairn,
            fallen: Rc::default(),
            running: RunningProcesses::default(),
            names: Cell::new(0),
        })
    }

    /// Removes everything that was made.
    pub fn remove(self) -> Result<()> {
        self.work.remove()
    }

    /// Returns a path of that name at which nothing is yet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.names.set(self.names.get() + 1);
        self.work.path().join(format!("{}-{name}", self.names.get()))
    }

    /// Makes a new directory.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(|error| Error::file(&path, error))?;
        Ok(path)
    }

    /// Returns the processes that have ended unexpectedly so far.
    pub fn fallen(&self) -> Vec<String> {
        self.fallen.borrow().clone()
    }

    /// Makes a command of Cairn, with the credentials of the stores here.
    pub fn cairn(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cairn);
        command.args(arguments).env_remove("CAIRN_LOG").env_remove("CAIRN_TOKEN");
        let keys = [("CAIRN_ROOT_KEY", "CAIRN_ROOT_SECRET"), ("CAIRN_KEY", "CAIRN_SECRET")];
        for (key, secret) in keys {
            command.env(key, KEY).env(secret, &self.secret);
        }
        command
    }

    /// Runs a command of Cairn to its end; returns its output.
    pub fn run_cairn(&self, arguments: &[&str]) -> Result<String> {
        run(self.cairn(arguments))
    }

    /// Returns credentials in the form for URLs and clients.
    pub fn credentials(&self) -> (String, String) {
        (KEY.to_owned(), self.secret.clone())
    }
}
