//! Servers and credentials kept in a file, for those who do not want them in the environment.
//!
//! ```toml
//! [default]
//! server = "https://cairn.example.org"
//! key = "CK..."
//! secret = "..."
//! ```

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cairn_base::Secret;
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// Server and credentials. It has no `Debug`: it holds secrets.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub server: Option<String>,
    pub key: Option<String>,
    pub secret: Option<String>,
    pub token: Option<String>,
    pub ca: Option<PathBuf>,
}

/// Reads a profile. If there is no file, only the default profile exists, which is empty.
pub fn load(name: Option<&str>) -> Result<Profile> {
    let missing = |path: &Path| match name {
        None => Ok(Profile::default()),
        Some(name) => Err(Failure::usage(format!(
            "{}: has no profile {name}: add a section [{name}]",
            path.display()
        ))),
    };
    let Some(path) = path() else { return missing(Path::new("~/.config/cairn/config.toml")) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => Secret::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(&path),
        Err(error) => return Err(Failure::file(&path, &error)),
    };
    check_mode(&path)?;
    // Without the parser's own words: they could repeat a secret.
    let profiles = toml::from_str::<BTreeMap<String, Profile>>(text.expose());
    let mut profiles = profiles.map_err(|_| {
        let text =
            "cannot be parsed: use sections [NAME] with server, key, secret, token, ca = \"...\"";
        Failure::new(format!("{}: {text}", path.display()))
    })?;
    match profiles.remove(name.unwrap_or("default")) {
        Some(profile) => Ok(profile),
        None => missing(&path),
    }
}

fn path() -> Option<PathBuf> {
    let config = env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
    let config = config.map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")))?;
    Some(config.join("cairn/config.toml"))
}

fn check_mode(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| Failure::file(path, &error))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::new(format!("{shown}: mode {mode:04o} lets others read it: chmod 600 {shown}")))
}
