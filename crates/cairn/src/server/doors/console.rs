//! The console of a server or gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cairn_audit::LineLog;
use cairn_console::{AuditPlaces, ConsoleDoor, Data, Insight, Site, literal, loopback};
use cairn_doors::serve;
use tokio::net::{TcpListener, TcpSocket};

use super::console_args::ConsolePlace;
use super::door::{Behind, Bound, Door, DoorArgs, DoorTask, say_taken};
use super::{http, s3};
use crate::failure::{Failure, Result};
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "console", bind };

/// Default address of the console of a server.
const DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9001);
/// Connections at the same time, at most. A browser has some of them.
const CONNECTIONS: usize = 1024;

fn bind(args: &DoorArgs, role: Role) -> Result<Option<Bound>> {
    let wanted = &args.console;
    let (address, is_asked_for) = match wanted.console {
        Some(ConsolePlace::Off) => return Ok(None),
        Some(ConsolePlace::At(address)) => (address, true),
        None if role == Role::Server => (DEFAULT, false),
        None => return Ok(None),
    };
    check(args, address)?;
    let bound = socket_at(address, is_asked_for)?.map(|socket| bound(args, socket)).transpose()?;
    Ok(bound.map(|bound| Bound { is_optional: !is_asked_for, ..bound }))
}

/// Binds a socket. Returns none if the address is taken and nobody asked for it.
fn socket_at(address: SocketAddr, is_asked_for: bool) -> Result<Option<TcpSocket>> {
    match serve::bind(address) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if !is_asked_for && error.kind() == io::ErrorKind::AddrInUse => {
            say_taken(DOOR.name, &address.to_string());
            Ok(None)
        }
        Err(error) => Err(Failure::address("console", "--console", address, &error)),
    }
}

/// Checks the options of the console.
///
/// # Errors
/// If secrets would be sent without TLS, or its own hosts are unknown.
fn check(args: &DoorArgs, address: SocketAddr) -> Result<()> {
    let has_tls = args.has_tls();
    if !address.ip().is_loopback() && !has_tls {
        return Err(Failure::usage(format!(
            "--console {address} is for other machines, and browsers send it secret keys: say \
             --tls-cert and --tls-key, or put a proxy with TLS before a console on 127.0.0.1"
        )));
    }
    if address.ip().is_unspecified() && args.console.console_url.is_empty() {
        return Err(Failure::usage(format!(
            "--console {address} is any address: say with --console-url by which origin browsers \
             reach it"
        )));
    }
    let console = &args.console;
    let secure = console.console_url.iter().find(|url| url.starts_with("https://"));
    if let (Some(url), false, None) = (secure, has_tls, &console.console_s3_url) {
        return Err(Failure::usage(format!(
            "browsers that reach the console by {url} load nothing from an S3 door without TLS: \
             say with --console-s3-url by which origin they reach that"
        )));
    }
    Ok(())
}

fn bound(args: &DoorArgs, socket: TcpSocket) -> Result<Bound> {
    let address = socket.local_addr()?;
    let scheme = args.scheme();
    let port = address.port();
    let mut origins: Vec<String> =
        args.console.console_url.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
    let is_https = |origin: &String| origin.starts_with("https://");
    let is_secure = args.has_tls() || !origins.is_empty() && origins.iter().all(is_https);
    if address.ip().is_loopback() && !is_secure {
        origins.extend(loopback(port));
    } else if !address.ip().is_unspecified() {
        origins.push(format!("{scheme}://{}:{port}", literal(address.ip())));
    }
    let given = |url: &Option<String>| url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
    let (s3_url, http_url) =
        (given(&args.console.console_s3_url), given(&args.console.console_http_url));
    let usage = |error: cairn_base::Error| Failure::usage(error.to_string());
    // The other doors may have any port: it is known once they are bound.
    let site = move |s3: &str, http: &str| {
        let at = |url: Option<String>, shown| url.map_or_else(|| beside(scheme, shown), Data::At);
        Site::new(&origins, at(s3_url, s3), at(http_url, http), is_secure, port)
    };
    let nowhere = "http://127.0.0.1:1";
    let checked = site.clone()(nowhere, nowhere).map_err(usage)?;
    let bucket = args.records.audit_bucket().map(str::to_owned);
    let serve = move |listener, behind: &mut Behind<'_>| serve(listener, behind, site, bucket);
    let shown = format!("{scheme}://{address}");
    let pages = checked.origins().to_vec();
    Ok(Bound { socket, shown, pages, is_optional: false, serve: Box::new(serve) })
}

/// Returns the address of a door: at the host of the console if the door listens at any address,
/// otherwise at its own.
fn beside(scheme: &'static str, shown: &str) -> Data {
    let authority = shown.split_once("://").map_or(shown, |(_, authority)| authority);
    match authority.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() || address.ip().is_loopback() => {
            Data::Beside { scheme, port: address.port() }
        }
        _ => Data::At(shown.to_owned()),
    }
}

fn serve(
    listener: TcpListener,
    behind: &mut Behind<'_>,
    site: impl FnOnce(&str, &str) -> cairn_base::Result<Site>,
    audit_bucket: Option<String>,
) -> Result<DoorTask> {
    let site = site(behind.shown(s3::DOOR.name), behind.shown(http::DOOR.name))?;
    let own = behind.metrics.door(DOOR.name);
    let mut serving = behind.serving(DOOR.name);
    let recent = serving.records.audit().and_then(LineLog::recent).cloned();
    let audit = AuditPlaces { recent, bucket: audit_bucket };
    let insight = Insight { audit, ..behind.offers.insight.clone() };
    let door = ConsoleDoor::new(Arc::clone(behind.admit), &own, site, insight);
    serving.limits.connections = serving.limits.connections.min(CONNECTIONS);
    Ok(Box::pin(serve::serve(listener, door, serving, behind.stopped.clone())))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        doors: DoorArgs,
    }

    fn bind_with(more: &[&str], role: Role) -> Result<Option<Bound>> {
        bind(&Command::parse_from([&["cairn"], more].concat()).doors, role)
    }

    #[tokio::test]
    async fn beyond_this_machine_it_needs_tls_and_a_name() {
        for (more, is_fine) in [
            (&["--console=127.0.0.1:0"][..], true),
            (&["--console=[::1]:0"], true),
            (&["--console=0.0.0.0:0"], false),
            (&["--console=0.0.0.0:0", "--console-url=https://c.example"], false),
            (&["--console=10.1.2.3:0"], false),
            (&["--console=0.0.0.0:0", "--tls-cert=c", "--tls-key=k"], false),
            (
                &["--console=0.0.0.0:0", "--tls-cert=c", "--tls-key=k", "--console-url=https://c"],
                true,
            ),
            (&["--console=127.0.0.1:0", "--console-url=nonsense"], false),
            (&["--console=127.0.0.1:0", "--console-s3-url=ftp://x"], false),
            (&["--console=127.0.0.1:0", "--console-http-url=ftp://x"], false),
        ] {
            assert_eq!(bind_with(more, Role::Gateway).is_ok(), is_fine, "{more:?}");
        }
    }

    #[tokio::test]
    async fn it_is_where_it_was_asked_for_or_not_at_all() {
        assert!(bind_with(&[], Role::Gateway).unwrap().is_none());
        assert!(bind_with(&["--console=off"], Role::Server).unwrap().is_none());
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("--console={}", taken.local_addr().unwrap());
        assert!(bind_with(&[&at], Role::Server).is_err());
        assert!(socket_at(taken.local_addr().unwrap(), false).unwrap().is_none());
        let bound = bind_with(&["--console=127.0.0.1:0"], Role::Gateway).unwrap().unwrap();
        assert!(bound.shown.starts_with("http://127.0.0.1:") && bound.pages.len() == 3);
    }

    #[tokio::test]
    async fn a_proxy_with_tls_makes_it_secure() {
        let mut more = vec!["--console=127.0.0.1:0", "--console-url=https://c.example/"];
        assert!(bind_with(&more, Role::Server).is_err(), "browsers do not reach the S3 door");
        more.push("--console-s3-url=https://s3.example");
        let bound = bind_with(&more, Role::Server).unwrap().unwrap();
        assert!(bound.pages.contains(&"https://c.example".to_owned()));
    }

    #[test]
    fn the_s3_door_is_where_browsers_reach_it() {
        for (shown, is_beside) in [
            ("http://127.0.0.1:9000", true),
            ("https://0.0.0.0:9000", true),
            ("https://[::]:9000", true),
            ("https://10.1.2.3:9000", false),
        ] {
            let is = matches!(beside("http", shown), Data::Beside { port: 9000, .. });
            assert_eq!(is, is_beside, "{shown}");
        }
    }
}
