//! Connections that are not reused, and handshakes that could be avoided.

use super::worth::REQUESTS;
use crate::Finding;
use crate::sample::{Pair, Program, Server};

/// Cost of a connection without its handshake: three packets, a socket, a task; seconds.
const CONNECTION: f64 = 150e-6;
/// Connections for each request from which on connections count as not kept.
const NOT_KEPT: f64 = 0.5;

pub fn not_kept(pair: &Pair<'_>) -> Vec<Finding> {
    let proxies = pair.processes().filter(|(_, _, process)| process.program == Program::Proxy);
    let proxies: Vec<&str> = proxies.map(|(_, _, process)| process.name.as_str()).collect();
    pair.servers().filter_map(|server| of(&server, &proxies)).collect()
}

fn of(server: &Server<'_>, proxies: &[&str]) -> Option<Finding> {
    let (requests, connections) = (server.requests(), accepted(server));
    if requests < REQUESTS || connections < NOT_KEPT * requests {
        return None;
    }
    let spent = connections * CONNECTION;
    let all = spent + server.request_seconds() + handshake_seconds(server);
    let mut evidence =
        vec![format!("{requests:.0} requests came over {connections:.0} new connections")];
    let remedy = match proxies.first() {
        Some(proxy) => {
            evidence.push(format!("{proxy} runs on this machine"));
            "have the proxy keep connections: in nginx `keepalive 64;` in the upstream with \
             `proxy_http_version 1.1;` and `proxy_set_header Connection \"\";`; in haproxy \
             `option http-keep-alive` and `http-reuse always`"
        }
        None => "have clients, and proxies between, use connections again (HTTP keep-alive)",
    };
    Some(Finding {
        kind: "connections not kept",
        cost_percent: 100.0 * spent / all,
        what: format!("{}: a new connection for nearly every request", server.url),
        evidence,
        remedy: remedy.to_owned(),
    })
}

/// TLS handshakes with a signature, which resumption or kept connections would avoid.
pub fn handshakes(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| of_handshakes(&server)).collect()
}

fn of_handshakes(server: &Server<'_>) -> Option<Finding> {
    let full = server.grew("cairn_tls_full_total", &[]);
    let resumed = server.grew("cairn_tls_resumed_total", &[]);
    let requests = server.requests();
    if requests < REQUESTS || full < NOT_KEPT * requests {
        return None;
    }
    let spent = handshake_seconds(server);
    let all = spent + accepted(server) * CONNECTION + server.request_seconds();
    let each = 1e3 * spent / (full + resumed).max(1.0);
    Some(Finding {
        kind: "full tls handshakes",
        cost_percent: 100.0 * spent / all,
        what: format!("{}: a full TLS handshake for nearly every request", server.url),
        evidence: vec![
            format!("{requests:.0} requests, {full:.0} full handshakes, {resumed:.0} resumed"),
            format!("a handshake takes {each:.2} ms"),
        ],
        remedy: "have clients keep connections and TLS sessions; with an RSA key change to ECDSA \
                 (P-256), whose signatures cost a tenth"
            .to_owned(),
    })
}

fn accepted(server: &Server<'_>) -> f64 {
    server.grew("cairn_connections_accepted_total", &[])
}

fn handshake_seconds(server: &Server<'_>) -> f64 {
    server.grew("cairn_tls_seconds_total", &[])
}
