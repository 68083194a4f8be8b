//! The options of the syslog door.

use std::net::SocketAddr;
use std::path::PathBuf;

use cairn_auth::Network;

/// Where the door is, whose records come, and from where.
#[derive(clap::Args)]
pub struct SyslogArgs {
    /// Address of the syslog door, such as 127.0.0.1:6514, which takes messages over TCP, or over
    /// TLS with --syslog-tls. Without this there is no syslog door
    #[arg(long, value_name = "ADDR", requires = "syslog_user")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) syslog: Option<SocketAddr>,
    /// User as whom messages of syslog are stored, in the bucket logs-USER
    #[arg(long, value_name = "USER", requires = "syslog")]
    pub(super) syslog_user: Option<String>,
    /// Take messages over TLS only, with the certificate of --tls-cert
    #[arg(long, requires_all = ["syslog", "certificate"])]
    pub(super) syslog_tls: bool,
    /// Authorities (PEM) that sign certificates of senders of syslog: senders must show such a
    /// certificate
    #[arg(long, value_name = "FILE", requires = "syslog_tls")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(super) syslog_client_ca: Option<PathBuf>,
    /// Network of senders of syslog, such as 10.0.0.0/8; may be given several times. Required if
    /// --syslog is reachable from other machines, unless there is --syslog-client-ca
    #[arg(long, value_name = "NETWORK", requires = "syslog", value_parser = network)]
    pub(super) syslog_client: Vec<Network>,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}
