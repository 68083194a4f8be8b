//! The directory of an account and its certificate.
//!
//! ```text
//! account.json      {"directory": URL, "credentials": {...}}   mode 0600
//! certificate.pem   the private key, then the chain            mode 0600
//! order.json        {"directory": URL, "names": [...]}         what certificate.pem was ordered as
//! ```
//!
//! Each file is replaced as a whole. `order.json` comes after the certificate: if it is missing or
//! names something else, a certificate is ordered.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::AccountCredentials;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

const ACCOUNT: &str = "account.json";
const CERTIFICATE: &str = "certificate.pem";
const ORDER: &str = "order.json";

pub struct Place(PathBuf);

#[derive(Serialize, Deserialize, PartialEq, Eq)]
pub struct CertificateOrder {
    pub directory: String,
    pub names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Account {
    directory: String,
    credentials: AccountCredentials,
}

impl Place {
    pub fn certificate_in(directory: &Path) -> PathBuf {
        directory.join(CERTIFICATE)
    }

    /// Opens the directory. Makes it if it is missing, and a certificate that no client trusts if
    /// there is none.
    pub fn open(path: &Path, names: &[String]) -> Result<Place> {
        let fail = |error: io::Error| Failure::file(path, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail)?;
        let place = Place(path.to_owned());
        let certificate = Place::certificate_in(path);
        if !certificate.try_exists().map_err(|error| Failure::file(&certificate, &error))? {
            let made = rcgen::generate_simple_self_signed(names);
            let made = made.map_err(|error| Failure::new(format!("certificate: {error}")))?;
            let pem = made.signing_key.serialize_pem() + &made.cert.pem();
            place.replace(CERTIFICATE, pem.as_bytes())?;
        }
        Ok(place)
    }

    /// Returns the account at the authority of this directory, if there is one.
    pub fn account(&self, directory: &str) -> Result<Option<AccountCredentials>> {
        let account: Option<Account> = self.read(ACCOUNT)?;
        let account = account.filter(|account| account.directory == directory);
        Ok(account.map(|account| account.credentials))
    }

    pub fn keep_account(&self, directory: &str, credentials: AccountCredentials) -> Result<()> {
        self.keep(ACCOUNT, &Account { directory: directory.to_owned(), credentials })
    }

    /// Returns the time at which the certificate is to be ordered again: at two thirds of its life,
    /// or at once if the order has changed.
    pub fn due(&self, ordered: &CertificateOrder) -> Result<SystemTime> {
        if self.read::<CertificateOrder>(ORDER)?.as_ref() != Some(ordered) {
            return Ok(UNIX_EPOCH);
        }
        let path = Place::certificate_in(&self.0);
        let wrong = |error: String| Failure::new(format!("{}: {error}", path.display()));
        let first =
            CertificateDer::from_pem_file(&path).map_err(|error| wrong(error.to_string()))?;
        let (_, read) = x509_parser::parse_x509_certificate(&first)
            .map_err(|error| wrong(error.to_string()))?;
        let at = |time: x509_parser::time::ASN1Time| time.timestamp().max(0).unsigned_abs();
        let (from, to) = (at(read.validity().not_before), at(read.validity().not_after));
        Ok(UNIX_EPOCH + Duration::from_secs(from + to.saturating_sub(from) / 3 * 2))
    }

    pub fn keep_certificate(
        &self,
        key: &str,
        chain: &str,
        ordered: &CertificateOrder,
    ) -> Result<()> {
        self.replace(CERTIFICATE, format!("{}\n{chain}", key.trim_end()).as_bytes())?;
        self.keep(ORDER, ordered)
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>> {
        let path = self.0.join(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Failure::file(&path, &error))?,
        };
        // Without the error of the library: it may quote a secret.
        let wrong = |_| Failure::new(format!("{}: damaged: remove it", path.display()));
        serde_json::from_slice(&text).map(Some).map_err(wrong)
    }

    fn keep(&self, name: &str, what: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec_pretty(what);
        self.replace(name, &text.map_err(|error| Failure::new(error.to_string()))?)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let write = || {
            // A file that was left there may have another mode.
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.0)?.sync_all()
        };
        write().map_err(|error| Failure::file(&path, &error))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn ordered(directory: &str) -> CertificateOrder {
        CertificateOrder { directory: directory.to_owned(), names: vec!["a.example".to_owned()] }
    }

    #[test]
    fn a_certificate_is_due_at_once_unless_it_is_the_one_that_was_ordered() {
        let work = tempfile::tempdir().unwrap();
        let path = work.path().join("acme");
        let place = Place::open(&path, &["a.example".to_owned()]).unwrap();
        let certificate = Place::certificate_in(&path);
        let made = fs::read_to_string(&certificate).unwrap();
        assert_eq!(fs::metadata(&certificate).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(place.due(&ordered("https://a")).unwrap(), UNIX_EPOCH, "nobody trusts it");

        let (key, chain) = made.split_at(made.find("-----BEGIN CERTIFICATE").unwrap());
        place.keep_certificate(key, chain, &ordered("https://a")).unwrap();
        assert!(place.due(&ordered("https://a")).unwrap() > UNIX_EPOCH);
        assert_eq!(place.due(&ordered("https://b")).unwrap(), UNIX_EPOCH, "another authority");
        // It is not made anew.
        let place = Place::open(&path, &["b.example".to_owned()]).unwrap();
        assert!(place.due(&ordered("https://a")).unwrap() > UNIX_EPOCH);
        fs::write(path.join(ORDER), "{").unwrap();
        assert!(place.due(&ordered("https://a")).is_err());
    }
}
