//! The syslog door of a server or gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_auth::Network;
use cairn_doors::serve;
use cairn_logs::{Intake, Options};
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, Served};
use super::syslog_args::SyslogArgs;
use crate::failure::{Failure, Result};
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "syslog", bind };

/// Connections at the same time, at most. A sender has one.
const CONNECTIONS: usize = 1024;

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    args.syslog.bind()
}

impl SyslogArgs {
    /// Must be called within a runtime.
    fn bind(&self) -> Result<Option<Bound>> {
        let (Some(address), Some(user)) = (self.syslog, &self.syslog_user) else { return Ok(None) };
        let clients = self.clients(address)?;
        let failed = |error| Failure::new(format!("syslog door on {address}: {error}"));
        let socket = serve::bind(address).map_err(failed)?;
        let bound = socket.local_addr()?;
        if !bound.ip().is_loopback() {
            tracing::warn!(
                address = %bound,
                "the syslog door is reachable from other machines: it has neither passwords nor \
                 encryption, and any machine in a network of --syslog-client may write any record"
            );
        }
        let user = user.clone();
        let serve = |listener, behind: &mut Behind<'_>| Ok(serve(listener, behind, user, clients));
        let (shown, pages) = (bound.to_string(), Vec::new());
        Ok(Some(Bound { socket, shown, pages, is_optional: false, serve: Box::new(serve) }))
    }

    /// # Errors
    /// Where anybody could come, and nobody said so.
    fn clients(&self, address: SocketAddr) -> Result<Arc<[Network]>> {
        if let Some(any) = self.syslog_client.iter().find(|network| network.is_any()) {
            return Err(Failure::usage(format!(
                "--syslog-client {any} is every machine that reaches this one: name networks"
            )));
        }
        if !self.syslog_client.is_empty() {
            return Ok(self.syslog_client.as_slice().into());
        }
        if !address.ip().is_loopback() {
            return Err(Failure::usage(format!(
                "--syslog {address} is for other machines, and this door has no passwords: say \
                 with --syslog-client which network senders are in"
            )));
        }
        let loopback = ["127.0.0.0/8", "::1"].map(Network::parse);
        Ok(loopback.into_iter().collect::<Result<_, _>>()?)
    }
}

fn serve(
    listener: TcpListener,
    behind: &mut Behind<'_>,
    user: String,
    clients: Arc<[Network]>,
) -> Served {
    let intake = Arc::new(Intake::new(behind.fs.clone()));
    behind.metrics.count_logs(Arc::clone(intake.counts()));
    let connections = behind.serving.limits.connections.min(CONNECTIONS);
    let options = Options { user, clients, connections };
    Box::pin(cairn_logs::serve(listener, intake, options, behind.stopped.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_was_named_may_come() {
        for (syslog, clients, is_fine) in [
            ("127.0.0.1:6514", &[][..], true),
            ("[::1]:6514", &[], true),
            ("0.0.0.0:6514", &[], false),
            ("10.1.2.3:6514", &[], false),
            ("0.0.0.0:6514", &["10.0.0.0/8"], true),
            ("0.0.0.0:6514", &["10.0.0.0/8", "0.0.0.0/0"], false),
            ("127.0.0.1:6514", &["::/0"], false),
        ] {
            let syslog_client = clients.iter().map(|text| Network::parse(text).unwrap()).collect();
            let address: SocketAddr = syslog.parse().unwrap();
            let syslog_user = Some("root".to_owned());
            let args = SyslogArgs { syslog: Some(address), syslog_user, syslog_client };
            assert_eq!(args.clients(address).is_ok(), is_fine, "{syslog} {clients:?}");
        }
    }
}
