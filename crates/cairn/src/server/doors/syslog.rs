//! The syslog door of a server or gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_auth::Network;
use cairn_doors::serve;
use cairn_doors::tls::Tls;
use cairn_logs::limits::SYSLOG_MESSAGE;
use cairn_logs::{Incoming, Intake, LogPaths, Options, ShakeHands};
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use super::syslog_args::SyslogArgs;
use crate::failure::{Failure, Result};
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "syslog", bind };

/// Connections at the same time, at most. A sender has one.
const CONNECTIONS: usize = 1024;

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    args.syslog.bind(args.log_paths()?)
}

impl SyslogArgs {
    /// Binds the door. Must be called within a runtime.
    fn bind(&self, paths: Arc<LogPaths>) -> Result<Option<Bound>> {
        let (Some(address), Some(user)) = (self.syslog, &self.syslog_user) else { return Ok(None) };
        let clients = self.clients(address)?;
        let failed = |error| Failure::address("syslog door", "--syslog", address, &error);
        let socket = serve::bind(address).map_err(failed)?;
        let bound = socket.local_addr()?;
        if !bound.ip().is_loopback() && self.syslog_client_ca.is_none() {
            tracing::warn!(
                address = %bound,
                tls = self.syslog_tls,
                "the syslog door is reachable from other machines, and without certificates of \
                 senders: any machine in a network of --syslog-client may write any record"
            );
        }
        let (user, is_tls) = (user.clone(), self.syslog_tls);
        let serve = move |listener, behind: &mut Behind<'_>| {
            serve(listener, behind, user, clients, is_tls, paths)
        };
        let (shown, pages) = (bound.to_string(), Vec::new());
        Ok(Some(Bound { socket, shown, pages, is_optional: false, serve: Box::new(serve) }))
    }

    /// Returns the networks of senders.
    ///
    /// # Errors
    /// If any machine could connect, and the options do not allow that.
    fn clients(&self, address: SocketAddr) -> Result<Option<Arc<[Network]>>> {
        if let Some(any) = self.syslog_client.iter().find(|network| network.is_any()) {
            return Err(Failure::usage(format!(
                "--syslog-client {any} is every machine that reaches this one: name networks"
            )));
        }
        if !self.syslog_client.is_empty() {
            return Ok(Some(self.syslog_client.as_slice().into()));
        }
        if self.syslog_client_ca.is_some() {
            return Ok(None);
        }
        if !address.ip().is_loopback() {
            return Err(Failure::usage(format!(
                "--syslog {address} is for other machines, and this door has no passwords: say \
                 with --syslog-client which network senders are in, or with --syslog-client-ca \
                 which authority signs their certificates"
            )));
        }
        let loopback = ["127.0.0.0/8", "::1"].map(Network::parse);
        Ok(Some(loopback.into_iter().collect::<Result<_, _>>()?))
    }
}

fn serve(
    listener: TcpListener,
    behind: &mut Behind<'_>,
    user: String,
    clients: Option<Arc<[Network]>>,
    is_tls: bool,
    paths: Arc<LogPaths>,
) -> Result<DoorTask> {
    let mut intake = Intake::new(behind.fs.clone());
    intake.set_paths(paths);
    let intake = Arc::new(intake);
    behind.metrics.count_logs(Arc::clone(intake.counts()));
    let connections = behind.serving.limits.connections.min(CONNECTIONS);
    let missing = || Failure::usage("--syslog-tls: there is no certificate (--tls-cert)");
    let tls = if is_tls {
        Some(shake_hands(behind.serving.tls.clone().ok_or_else(missing)?))
    } else {
        None
    };
    let options = Options { user, clients, tls, connections, patience: SYSLOG_MESSAGE };
    Ok(Box::pin(cairn_logs::serve(listener, intake, options, behind.stopped.clone())))
}

fn shake_hands(tls: Arc<Tls>) -> ShakeHands {
    Arc::new(move |stream| {
        let tls = Arc::clone(&tls);
        Box::pin(async move {
            let stream = tls.accept(stream).await?;
            Ok(Box::new(stream) as Box<dyn Incoming>)
        })
    })
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
            let (syslog, syslog_client_ca) = (Some(address), None);
            let mut args = SyslogArgs {
                syslog,
                syslog_user,
                syslog_client,
                syslog_tls: true,
                syslog_client_ca,
            };
            assert_eq!(args.clients(address).is_ok(), is_fine, "{address} {clients:?}");
            args.syslog_client_ca = Some("senders.pem".into());
            let with_certificates = args.clients(address);
            if clients.is_empty() {
                assert!(with_certificates.unwrap().is_none(), "from anywhere")
            } else {
                assert_eq!(with_certificates.is_ok(), is_fine, "{address} {clients:?}")
            }
        }
    }
}
