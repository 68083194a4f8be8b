//! TLS: a certificate that is read again when its files change, session resumption, ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use cairn_base::{Error, Result};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const WATCH_PERIOD: Duration = Duration::from_secs(5);
/// Sessions of TLS 1.2 clients that do not take tickets.
const SESSIONS: usize = 4096;

/// The TLS side of a listener.
pub struct Tls {
    acceptor: TlsAcceptor,
    certificate: Arc<Certificate>,
    files: Files,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The certificate in use.
#[derive(Debug)]
struct Certificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Tls {
    /// Reads a certificate chain and its private key, both PEM.
    ///
    /// # Errors
    /// `Invalid` if they are not what they should be or do not belong together; `Io`.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Tls>> {
        let files = Files { certificate: certificate.into(), key: key.into() };
        let certificate = Arc::new(Certificate(ArcSwap::new(files.read()?)));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(invalid("TLS"))?
            .with_no_client_auth()
            .with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(invalid("TLS tickets"))?;
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Arc::new(Tls { acceptor, certificate, files }))
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Reads the files again, for new connections. On an error the former certificate stays.
    pub fn reload(&self) -> Result<()> {
        self.certificate.0.store(self.files.read()?);
        Ok(())
    }

    /// Reloads whenever a file has changed; never ends.
    pub async fn watch(self: Arc<Self>) {
        let mut known = self.files.modified();
        loop {
            tokio::time::sleep(WATCH_PERIOD).await;
            let found = self.files.modified();
            if found == known {
                continue;
            }
            // Tried again at the next look if the files are half way through their replacement.
            match self.reload() {
                Ok(()) => {
                    known = found;
                    tracing::info!("certificate reloaded");
                }
                Err(error) => tracing::error!(%error, "certificate not reloaded, the former stays"),
            }
        }
    }
}

fn invalid<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Error {
    move |error| Error::Invalid(format!("{what}: {error}"))
}

impl Files {
    fn read(&self) -> Result<Arc<CertifiedKey>> {
        let shown = self.certificate.display().to_string();
        let pem = std::fs::read(&self.certificate)?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(invalid(&shown))?;
        if chain.is_empty() {
            return Err(Error::Invalid(format!("{shown}: no certificate in it")));
        }
        let key_shown = self.key.display().to_string();
        let key = PrivateKeyDer::from_pem_slice(&std::fs::read(&self.key)?);
        let key = key.map_err(invalid(&key_shown))?;
        let provider = aws_lc_rs::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(invalid(&shown))?;
        Ok(Arc::new(certified))
    }

    fn modified(&self) -> [Option<SystemTime>; 2] {
        let modified = |path: &Path| std::fs::metadata(path).ok()?.modified().ok();
        [modified(&self.certificate), modified(&self.key)]
    }
}
