//! Parses a URL into the settings of a connection.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use cairn_base::{Error, Result};
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Timeout of one attempt to connect to one address, unless the URL sets it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence of a peer after which the kernel checks that it is alive.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Time within which the peer's kernel must acknowledge sent bytes.
const SENT_TIMEOUT: Duration = Duration::from_secs(20);

/// The requirements on the server's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trust {
    /// None: encryption only keeps out passive listeners.
    Anyone,
    /// It must be signed by one of these authorities, and name the host of the URL.
    Roots(PathBuf),
}

/// The parts of a URL.
pub struct Url {
    pub config: Config,
    pub trust: Trust,
    /// Host, port and database, for messages.
    pub shown: String,
}

impl Url {
    /// Parses a URL. Messages never show it: it may contain a password.
    pub fn parse(url: &str) -> Result<Url> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid("it does not begin with postgres://"));
        }
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "sslmode" => mode = Some(value),
                "sslrootcert" => roots = Some(PathBuf::from(value)),
                _ => rest.push(pair),
            }
        }
        let plain =
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config =
            Config::from_str(&plain).map_err(|error| invalid(&super::errors::text(&error)))?;
        let (mode, trust) = tls(mode.as_deref(), roots)?;
        config.ssl_mode(mode);
        let shown = shown(&config)?;
        settle(&mut config);
        Ok(Url { config, trust, shown })
    }
}

fn invalid(why: &str) -> Error {
    Error::Invalid(format!("the URL of the database: {why}"))
}

/// Interprets the options as libpq does, without verify-ca.
fn tls(mode: Option<&str>, roots: Option<PathBuf>) -> Result<(SslMode, Trust)> {
    match (mode, roots) {
        (Some("disable"), _) => Ok((SslMode::Disable, Trust::Anyone)),
        (None | Some("prefer"), None) => Ok((SslMode::Prefer, Trust::Anyone)),
        (Some("require"), None) => Ok((SslMode::Require, Trust::Anyone)),
        (Some("verify-full"), Some(roots)) => Ok((SslMode::Require, Trust::Roots(roots))),
        (Some("verify-full"), None) => {
            Err(invalid("sslmode=verify-full needs sslrootcert=FILE, the certificates to trust"))
        }
        (_, Some(_)) => Err(invalid("sslrootcert needs sslmode=verify-full")),
        (Some(_), None) => {
            Err(invalid("sslmode must be one of disable, prefer, require, verify-full"))
        }
    }
}

fn shown(config: &Config) -> Result<String> {
    let mut hosts = Vec::new();
    for (at, host) in config.get_hosts().iter().enumerate() {
        let ports = config.get_ports();
        let port = ports.get(at).or(ports.first()).unwrap_or(&5432);
        hosts.push(match host {
            Host::Tcp(name) if name.contains('@') => {
                return Err(invalid("write %40 for each @ in user or password"));
            }
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        });
    }
    if hosts.is_empty() {
        return Err(invalid("it names no host"));
    }
    let Some(user) = config.get_user() else { return Err(invalid("it names no user")) };
    let database = config.get_dbname().unwrap_or(user);
    Ok(format!("PostgreSQL at {}/{database}", hosts.join(",")))
}

/// Sets the options that the URL leaves open.
fn settle(config: &mut Config) {
    config.keepalives_idle(KEEPALIVE).keepalives_retries(3).keepalives_interval(KEEPALIVE / 3);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SENT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("cairn");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        match Url::parse(url) {
            Err(Error::Invalid(text)) => text,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{url} is taken"),
        }
    }

    #[test]
    fn what_it_says_is_kept() {
        let text = "postgres://cairn:se%40cret@db.example:5433/store?sslmode=verify-full\
                    &connect_timeout=3&sslrootcert=%2Fetc%2Fca.pem";
        let url = Url::parse(text).expect("a URL");
        assert_eq!(url.trust, Trust::Roots("/etc/ca.pem".into()));
        assert_eq!(url.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(url.config.get_password(), Some(&b"se@cret"[..]));
        assert_eq!(url.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(url.shown, "PostgreSQL at db.example:5433/store");
    }

    #[test]
    fn passwords_are_in_no_message() {
        for url in [
            "mysql://u:hunter2@h/d",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:x@hunter2@h/d",
            "postgres://u:hunter2@/d",
            "postgres://u:hunter2@h/d?nonsense=hunter2",
            "postgres://u:hunter2@h/d?sslmode=hunter2",
            "postgres://u:hunter2@h/d?sslmode=verify-full",
            "postgres://u:hunter2@h/d?sslrootcert=/ca.pem",
            "postgres://u:hunter2%@h/d?connect_timeout=x",
        ] {
            let text = refused(url);
            assert!(!text.contains("hunter2"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }
}
