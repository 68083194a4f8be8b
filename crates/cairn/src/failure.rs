//! Failures of commands: one line that says what failed and what to do, and an exit code.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Remedy for damaged metadata of a server.
pub const DAMAGED_METADATA: &str = "restore the store from a backup (cairn restore TARGET \
    NEW_DIR), or move its directory `meta` away and load a dump of the metadata (cairn meta load \
    FILE DIR); keep what is damaged until then";
/// Remedy for damaged metadata of the only master of a cluster.
pub const DAMAGED_MASTER: &str = "there is no other master to fill this one: move its directory \
    `meta` away and load a dump of the metadata (cairn meta load FILE DIR), which `cairn restore \
    TARGET --dump FILE` makes of a backup; keep what is damaged until then";

/// Reason why a command ends without having done its work.
#[derive(Debug)]
pub struct Failure {
    text: String,
    code: u8,
    is_not_found: bool,
    is_refused: bool,
    is_passing: bool,
    is_unmet: bool,
    is_full: bool,
    is_damage: bool,
    /// Kind of the operating system's error, if it is about a file.
    kind: Option<io::ErrorKind>,
}

impl Failure {
    fn with_code(text: impl Into<String>, code: u8) -> Failure {
        Failure {
            text: text.into(),
            code,
            is_not_found: false,
            is_refused: false,
            is_passing: false,
            is_unmet: false,
            is_full: false,
            is_damage: false,
            kind: None,
        }
    }

    /// The subject of the command does not exist.
    pub fn not_found(text: impl Into<String>) -> Failure {
        Failure { is_not_found: true, is_refused: true, ..Failure::new(text) }
    }

    /// A server refused the request, and would refuse it again.
    pub fn refused(text: impl Into<String>) -> Failure {
        Failure { is_refused: true, ..Failure::new(text) }
    }

    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    pub fn is_not_found(&self) -> bool {
        self.is_not_found
    }

    /// Returns true if a later attempt may succeed.
    pub fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// Marks the failure as passing: a later attempt may succeed.
    pub fn passing(self) -> Failure {
        Failure { is_passing: true, ..self }
    }

    /// A condition of the request does not hold.
    pub fn unmet(text: impl Into<String>) -> Failure {
        Failure { is_unmet: true, ..Failure::refused(text) }
    }

    pub fn is_unmet(&self) -> bool {
        self.is_unmet
    }

    /// Stored data fail verification, or are gone.
    pub fn damage(text: impl Into<String>) -> Failure {
        Failure { is_damage: true, ..Failure::new(text) }
    }

    pub fn is_damage(&self) -> bool {
        self.is_damage
    }

    /// Metadata that only this machine has could not be opened.
    pub fn of_metadata(error: cairn_base::Error, path: &Path) -> Failure {
        let failure = Failure::from(error).of(path.display());
        if failure.is_damage { failure.and(DAMAGED_METADATA) } else { failure }
    }

    /// There is no room.
    pub fn full(text: impl Into<String>) -> Failure {
        Failure { is_full: true, ..Failure::new(text) }
    }

    pub fn is_full(&self) -> bool {
        self.is_full || self.kind == Some(io::ErrorKind::StorageFull)
    }

    /// The wanted name cannot be the name of a file.
    pub fn of_a_name(text: impl Into<String>) -> Failure {
        Failure { kind: Some(io::ErrorKind::InvalidFilename), ..Failure::new(text) }
    }

    /// Returns true if a file cannot have the name that it should get, beside other files.
    pub fn is_of_a_name(&self) -> bool {
        use io::ErrorKind as Kind;
        self.kind.is_some_and(|kind| {
            matches!(
                kind,
                Kind::NotADirectory
                    | Kind::IsADirectory
                    | Kind::AlreadyExists
                    | Kind::DirectoryNotEmpty
                    | Kind::InvalidFilename
                    | Kind::InvalidInput
            )
        })
    }

    /// The command failed: exit code 1.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure::with_code(text, 1)
    }

    /// The command line makes no sense: exit code 2.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::with_code(text, 2)
    }

    /// An operation on a file of the operating system failed.
    pub fn file(path: &Path, error: &io::Error) -> Failure {
        let text = format!("{}: {error}", path.display());
        Failure { kind: Some(error.kind()), ..Failure::new(text) }
    }

    /// A door could not be bound to its address; `option` chooses another.
    pub fn address(title: &str, option: &str, address: SocketAddr, error: &io::Error) -> Failure {
        let (ip, port) = (address.ip(), address.port());
        let other = SocketAddr::new(ip, port.checked_add(10).unwrap_or(9010));
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!(": stop the process that has it, or choose another by {option} {other}")
            }
            io::ErrorKind::AddrNotAvailable => {
                format!(": this machine has no such address: choose one that it has by {option}")
            }
            io::ErrorKind::PermissionDenied if port < 1024 => {
                format!(": ports below 1024 need CAP_NET_BIND_SERVICE: choose another by {option}")
            }
            _ => String::new(),
        };
        let text = format!("{title} on {address}: {error}{remedy}");
        Failure { kind: Some(error.kind()), ..Failure::new(text) }
    }

    /// Returns true if another process has the address of a door.
    pub fn is_taken(&self) -> bool {
        self.kind == Some(io::ErrorKind::AddrInUse)
    }

    /// Puts what was being done before the text of the failure.
    pub fn of(self, what: impl fmt::Display) -> Failure {
        Failure { text: format!("{what}: {}", self.text), ..self }
    }

    /// Adds a remedy to the text of the failure.
    pub fn and(self, remedy: &str) -> Failure {
        Failure { text: format!("{}: {remedy}", self.text), ..self }
    }

    /// Returns the exit code of the process; 0 if there is nothing to say.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<cairn_base::Error> for Failure {
    fn from(error: cairn_base::Error) -> Failure {
        let is_passing = matches!(error, cairn_base::Error::Unavailable(_));
        let is_damage = matches!(error, cairn_base::Error::Corrupt { .. });
        Failure { is_passing, is_damage, ..Failure::new(error.to_string()) }
    }
}

impl From<io::Error> for Failure {
    /// The reader of the output may stop at any time (`cairn ls | head`): that is no failure.
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::with_code(String::new(), 0),
            _ => Failure::new(error.to_string()),
        }
    }
}
