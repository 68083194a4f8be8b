//! The options of the syslog door.

use std::net::SocketAddr;

use cairn_auth::Network;

/// Where the door is, whose records come, and from where.
#[derive(clap::Args)]
pub struct SyslogArgs {
    /// Where messages of syslog are taken over TCP, such as 127.0.0.1:6514. Without this there is
    /// no such door
    #[arg(long, value_name = "ADDR", requires = "syslog_user")]
    pub(super) syslog: Option<SocketAddr>,
    /// The user as whom messages of syslog are stored, in the bucket logs-USER
    #[arg(long, value_name = "USER", requires = "syslog")]
    pub(super) syslog_user: Option<String>,
    /// A network that senders of syslog are in, such as 10.0.0.0/8; several are fine. Beyond this
    /// machine there must be one
    #[arg(long, value_name = "NETWORK", requires = "syslog", value_parser = network)]
    pub(super) syslog_client: Vec<Network>,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}
