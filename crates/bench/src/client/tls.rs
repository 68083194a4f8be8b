//! TLS on the side of a client.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cairn_tls::{Trust, authorities};
use rustls::client::Resumption;
use tokio_rustls::TlsConnector;

use crate::error::{Error, Result};

#[derive(Clone, Default, Debug, clap::Args)]
pub struct Tls {
    /// Trust only the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE", env = "CAIRN_CA")]
    ca: Option<PathBuf>,
    /// Trust any certificate of the server
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Let connections resume TLS sessions; otherwise each is a full handshake
    #[arg(long)]
    resume: bool,
}

impl Tls {
    /// Trusts any certificate: for servers that were started for this.
    pub fn any_certificate() -> Tls {
        Tls { insecure: true, ..Tls::default() }
    }

    fn trust(&self) -> Result<Trust> {
        let Some(path) = &self.ca else {
            return Ok(if self.insecure { Trust::Anyone } else { Trust::Public });
        };
        let pem = fs::read(path).map_err(|error| Error::file(path, error))?;
        let read = authorities(&pem).map_err(|why| Error::file(path, why))?;
        Ok(Trust::Authorities(read))
    }
}

pub fn connector(tls: &Tls) -> Result<TlsConnector> {
    let config = cairn_tls::client_config(tls.trust()?);
    let mut config = config.map_err(|error| Error::failed(format!("TLS: {error}")))?;
    if !tls.resume {
        config.resumption = Resumption::disabled();
    }
    Ok(TlsConnector::from(Arc::new(config)))
}
