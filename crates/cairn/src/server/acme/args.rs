//! The options of certificates from an authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_tls::Trust;

use super::challenges::Challenges;
use super::{Acme, Place};
use crate::failure::{Failure, Result};

/// Let's Encrypt, for certificates that browsers trust.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The names that certificates are for, and the authority that signs them.
#[derive(clap::Args)]
pub struct AcmeArgs {
    /// Get a certificate for this name from an authority by ACME and renew it, instead of
    /// --tls-cert and --tls-key; may be given several times. The authority must reach the door
    /// --redirect at port 80 of the name
    #[arg(long, value_name = "NAME", value_parser = name, group = "certificate")]
    #[arg(requires_all = ["acme_dir", "acme_accept_terms", "redirect"])]
    acme: Vec<String>,
    /// Directory of the account and the certificate, readable by the owner alone. Each process has
    /// its own
    #[arg(long, value_name = "DIR", requires = "acme")]
    acme_dir: Option<PathBuf>,
    /// You accept the terms of the authority
    #[arg(long, requires = "acme")]
    acme_accept_terms: bool,
    /// Address to which the authority may send mail, such as ops@example.org
    #[arg(long, value_name = "ADDRESS", requires = "acme")]
    acme_mail: Option<String>,
    /// The directory of the authority
    #[arg(long, value_name = "URL", value_parser = directory, default_value = DIRECTORY)]
    acme_directory: String,
    /// Authorities that sign the certificate of --acme-directory, PEM; the default is those that
    /// browsers trust
    #[arg(long, value_name = "FILE", requires = "acme")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    acme_ca: Option<PathBuf>,
    /// Answers of the door --redirect to the authority.
    #[arg(skip)]
    challenges: Arc<Challenges>,
}

impl AcmeArgs {
    /// Returns the file that has the certificate and its private key.
    pub fn certificate(&self) -> Option<PathBuf> {
        let place = self.acme_dir.as_deref().filter(|_| !self.acme.is_empty());
        place.map(Place::certificate_in)
    }

    pub fn challenges(&self) -> Arc<Challenges> {
        Arc::clone(&self.challenges)
    }

    /// Opens the directory. Until it has a certificate of the authority, it gets a provisional
    /// certificate, which no client trusts, so that doors can open.
    pub fn open(&self) -> Result<Option<Acme>> {
        let Some(directory) = self.acme_dir.as_deref().filter(|_| !self.acme.is_empty()) else {
            return Ok(None);
        };
        let mut names = self.acme.clone();
        names.sort();
        names.dedup();
        Ok(Some(Acme {
            place: Place::open(directory, &names)?,
            names,
            directory: self.acme_directory.clone(),
            mail: self.acme_mail.clone(),
            trust: self.acme_ca.as_deref().map_or(Ok(Trust::Public), trust)?,
            challenges: self.challenges(),
        }))
    }
}

fn trust(path: &Path) -> Result<Trust> {
    let pem = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
    let read = cairn_tls::authorities(&pem);
    let read = read.map_err(|what| Failure::usage(format!("{}: {what}", path.display())))?;
    Ok(Trust::Authorities(read))
}

/// Parses a host name of the domain name system. Names with `*` need a proof of another kind.
fn name(text: &str) -> Result<String, &'static str> {
    let is_label = |label: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_fine) && !label.starts_with('-')
    };
    if text.starts_with("*.") {
        return Err("authorities sign such a name only after a proof in the domain name system: \
                    get it with another program, and use --tls-cert");
    }
    if text.parse::<std::net::IpAddr>().is_ok() || text.len() > 253 {
        return Err("use the name of a host, such as files.example.org");
    }
    if text.split('.').all(is_label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("use the name of a host, such as files.example.org")
    }
}

fn directory(text: &str) -> Result<String, &'static str> {
    if text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        Ok(text.to_owned())
    } else {
        Err("use a URL that begins with https://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts() {
        assert_eq!(name("Files.Example.org"), Ok("files.example.org".to_owned()));
        for bad in ["", ".", "a..b", "-a.b", "a_b", "*.a.b", "10.0.0.1", "::1", "a/b", "a:1"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert!(directory("http://a/directory").is_err() && directory("https://").is_err());
    }
}
