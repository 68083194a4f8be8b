//! NFS-Ganesha as a peer: it serves a local directory.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::ports::free_address;
use super::process::Process;
use super::site::Lab;
use super::system::{installed, is_listening, write};
use crate::error::{Error, Result};

const PACKAGE: &str = "nfs-ganesha-vfs rpcbind";

const CONF: &str = "NFS_CORE_PARAM {
    NFS_Port = @PORT@; MNT_Port = @MOUNT@; Bind_addr = 127.0.0.1; NFS_Protocols = 3;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}
EXPORT {
    Export_Id = 1; Path = @ROOT@; Pseudo = /bench; Protocols = 3; Transports = TCP;
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; PrivilegedPort = false;
    FSAL { Name = VFS; }
}
LOG { Default_Log_Level = EVENT; }
";

/// It does not start without an rpcbind. It gets a separate one, which no other process sees.
const START: &str = "mount -t tmpfs run /run && mkdir /run/ganesha || exit 1
unshare -n \"$2\" -f &
until [ -S /run/rpcbind.sock ]; do sleep 0.02; done
exec \"$3\" -F -f \"$0\" -L \"$1\" -p /run/ganesha/pid";

pub struct Ganesha {
    pub process: Process,
    /// Directory that it serves.
    pub root: PathBuf,
    /// URL for its clients.
    pub url: String,
}

impl Ganesha {
    pub fn start(lab: &Lab) -> Result<Ganesha> {
        let programs = [installed("rpcbind", PACKAGE)?, installed("ganesha.nfsd", PACKAGE)?];
        let (work, root) = (lab.directory("ganesha")?, lab.directory("ganesha-export")?);
        let root = root.canonicalize().map_err(|error| Error::file(&root, error))?;
        let (address, mount) = (free_address()?, free_address()?);
        let port = |address: &str| address.rsplit(':').next().unwrap_or_default().to_owned();
        let text = CONF.replace("@PORT@", &port(&address)).replace("@MOUNT@", &port(&mount));
        let (conf, log) = (work.join("conf"), work.join("log"));
        write(&conf, text.replace("@ROOT@", &root.display().to_string()))?;
        // All other processes end with the first one.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START]);
        command.arg(conf).arg(log).args(programs);
        let mut process = Process::start(lab, "nfs-ganesha", Signal::KILL, command)?;
        process.wait(|_| Ok((is_listening(&address) && is_listening(&mount)).then_some(())))?;
        let (port, mount) = (port(&address), port(&mount));
        let url = format!("nfs://127.0.0.1{}?nfsport={port}&mountport={mount}", root.display());
        Ok(Ganesha { process, root, url })
    }
}
