//! TLS: a certificate that is read again when its files change, session resumption, ALPN, and
//! certificates of clients.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use cairn_base::{Error, Result};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Period at which the files are checked for changes.
const WATCH_PERIOD: Duration = Duration::from_secs(5);
/// Number of sessions of TLS 1.2 clients that do not take tickets.
const SESSIONS: usize = 4096;

/// The TLS side of a listener.
pub struct Tls {
    acceptor: TlsAcceptor,
    /// The configuration for clients that must show certificates, if there are any.
    private: Option<ArcSwap<ServerConfig>>,
    certificate: Arc<Certificate>,
    files: Files,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The authorities that sign certificates of clients.
    authorities: Option<PathBuf>,
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
    /// `Invalid` if they are malformed or do not belong together; `Io`.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Tls>> {
        Tls::load_private(certificate, key, None)
    }

    /// Reads the files as [`Tls::load`] does, and the certificates of the authorities that sign
    /// those of clients.
    ///
    /// # Errors
    /// Same errors as [`Tls::load`].
    pub fn load_private(
        certificate: &Path,
        key: &Path,
        authorities: Option<&Path>,
    ) -> Result<Arc<Tls>> {
        let authorities = authorities.map(Path::to_owned);
        let files = Files { certificate: certificate.into(), key: key.into(), authorities };
        let certificate = Arc::new(Certificate(ArcSwap::new(files.read()?)));
        let mut public = config(&certificate, WebPkiClientVerifier::no_client_auth())?;
        public.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(public));
        let private = files.verifier()?.map(|verifier| config(&certificate, verifier));
        let private = private.transpose()?.map(ArcSwap::from_pointee);
        Ok(Arc::new(Tls { acceptor, private, certificate, files }))
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Does a handshake with a client that does not speak HTTP. The client must show a certificate
    /// if there are authorities for that.
    ///
    /// # Errors
    /// Those of the connection and of the handshake.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        match &self.private {
            None => self.acceptor.accept(stream).await,
            Some(config) => TlsAcceptor::from(config.load_full()).accept(stream).await,
        }
    }

    /// Reads the files again, for new connections. On an error the former contents stay in use.
    pub fn reload(&self) -> Result<()> {
        let (certificate, verifier) = (self.files.read()?, self.files.verifier()?);
        if let Some((private, verifier)) = self.private.as_ref().zip(verifier) {
            // Its tickets are new, too: a former ticket would stand for an earlier certificate.
            private.store(Arc::new(config(&self.certificate, verifier)?));
        }
        self.certificate.0.store(certificate);
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
            // The next look tries again if the files are only half replaced.
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

fn config(
    certificate: &Arc<Certificate>,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(invalid("TLS"))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(certificate) as _);
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(invalid("TLS tickets"))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    Ok(config)
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

    /// Verifies certificates of clients, if there are authorities for that.
    fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>> {
        let Some(path) = &self.authorities else { return Ok(None) };
        let shown = path.display().to_string();
        let pem = std::fs::read(path)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.map_err(invalid(&shown))?).map_err(invalid(&shown))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = builder.build().map_err(invalid(&shown))?;
        Ok(Some(verifier))
    }

    fn modified(&self) -> [Option<SystemTime>; 3] {
        let modified = |path: &Path| std::fs::metadata(path).ok()?.modified().ok();
        let authorities = self.authorities.as_deref().and_then(modified);
        [modified(&self.certificate), modified(&self.key), authorities]
    }
}
