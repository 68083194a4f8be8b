use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Clock, Error, KeyHash, NodeId, Pin, Role, Roles};
use cairn_cluster::identity::{Ca, NodeKey};
use cairn_cluster::wire::{Listen, accept};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{
    CLUSTER, Cluster, GATEWAY, MASTER, Node, PATIENCE, denied, echo, unavailable,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A cluster with a master that listens.
async fn world() -> (Cluster, String) {
    let cluster = Cluster::new();
    let address = cluster.node(MASTER, Role::Master).listen().await;
    (cluster, address)
}

#[tokio::test]
async fn a_node_of_the_map_is_admitted() {
    let (cluster, address) = world().await;
    let peer = cluster.node(GATEWAY, Role::Gateway).dial_and_call(&address).await.unwrap();
    assert_eq!(peer.info().authenticated.node, MASTER);
    assert_eq!(peer.info().authenticated.roles, Roles::from(Role::Master));
}

#[tokio::test]
async fn a_node_with_another_authority_is_not() {
    let (cluster, address) = world().await;
    // The same cluster id, node id and key; the authority is another.
    let other = Cluster::new();
    let key = NodeKey::generate().unwrap();
    cluster.map.set(GATEWAY, Pin { key: key.public().hash(), roles: Role::Gateway.into() });
    let certificate = other.issue(GATEWAY, Role::Gateway, &key);
    let mut stranger = other.node_with(GATEWAY, Role::Gateway, key, certificate);
    denied(stranger.dial_and_call(&address).await, "certificate: ");
    // It does not care who the server is: then the server refuses it.
    stranger.trust.identity = {
        let ours = cluster.authority();
        let key = NodeKey::from_pem(&stranger.trust.identity.key().to_pem()).unwrap();
        let theirs = stranger.trust.identity.certificate();
        assert!(
            cairn_cluster::identity::Identity::new(GATEWAY, ours, key, theirs, cluster.clock.now())
                .is_err()
        );
        stranger.trust.identity
    };
    denied(raw_client(&address, &stranger, &[]).await, "the peer refuses this node");
}

/// A client that trusts any server, shows what `node` has, and asks one thing.
async fn raw_client(
    address: &str,
    node: &Node,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Result<(), Error> {
    let protocols: &[&[u8]] = &[b"cairn-wire/1"];
    let result = raw_tls(address, node, versions, protocols).await;
    result.map(|_| ()).map_err(|error| {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::AlertReceived(alert)) => {
                Error::Denied(format!("the peer refuses this node: {alert:?}"))
            }
            _ => Error::Io(error),
        }
    })
}

async fn raw_tls(
    address: &str,
    node: &Node,
    versions: &[&'static rustls::SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> std::io::Result<Vec<u8>> {
    let versions = if versions.is_empty() { rustls::ALL_VERSIONS } else { versions };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let identity = &node.trust.identity;
    let key = rustls_pem_key(identity.key());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_auth_cert(vec![identity.certificate()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("x").unwrap();
    let mut stream = connector.connect(name, stream).await?;
    stream.write_all(&crate::strange_bytes_end_the_connection::hello(GATEWAY.0, 3)).await?;
    let mut head = vec![0; 16];
    stream.read_exact(&mut head).await?;
    Ok(head)
}

pub fn rustls_pem_key(key: &NodeKey) -> PrivateKeyDer<'static> {
    use rustls::pki_types::pem::PemObject;
    PrivateKeyDer::from_pem_slice(key.to_pem().expose().as_bytes()).unwrap()
}

#[derive(Debug)]
pub struct Anybody;

impl rustls::client::danger::ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[tokio::test]
async fn an_older_tls_is_not_spoken() {
    let (cluster, address) = world().await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    raw_client(&address, &gateway, &[&rustls::version::TLS13]).await.unwrap();
    let old = raw_client(&address, &gateway, &[&rustls::version::TLS12]).await;
    denied(old, "ProtocolVersion");
}

#[tokio::test]
async fn who_asks_for_another_protocol_gets_none() {
    let (cluster, address) = world().await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let asking = async |names: &[&[u8]]| raw_tls(&address, &gateway, &[], names).await;
    assert!(asking(&[b"cairn-wire/1"]).await.is_ok());
    assert!(asking(&[]).await.is_err());
    assert!(asking(&[b"h2"]).await.is_err());
    assert!(asking(&[b"cairn-join/1"]).await.is_err(), "there is no desk here");
    assert!(asking(&[b"cairn-join/1", b"cairn-wire/1"]).await.is_err());
}

#[tokio::test]
async fn an_expired_certificate_is_not_admitted() {
    let (cluster, address) = world().await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    gateway.dial_and_call(&address).await.unwrap();
    cluster.clock.advance(31 * DAY);
    // The side that looks first refuses.
    denied(gateway.dial_and_call(&address).await, "certificate");
    denied(raw_client(&address, &gateway, &[]).await, "the peer refuses this node");
    // With new certificates on both sides it goes on.
    let fresh = cluster.node(NodeId(8), Role::Master).listen().await;
    denied(gateway.dial_and_call(&fresh).await, "the peer refuses this node");
    let identity = &gateway.trust.identity;
    assert!(identity.is_due(cluster.clock.now()));
    let renewed = cluster.issue(GATEWAY, Role::Gateway, identity.key());
    identity.renew(renewed, cluster.clock.now()).unwrap();
    assert!(!identity.is_due(cluster.clock.now()));
    gateway.dial_and_call(&fresh).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_due_after_two_thirds_of_its_time() {
    let cluster = Cluster::new();
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let identity = &gateway.trust.identity;
    cluster.clock.advance(19 * DAY);
    assert!(!identity.is_due(cluster.clock.now()));
    cluster.clock.advance(2 * DAY);
    assert!(identity.is_due(cluster.clock.now()));
    let others = cluster.issue(NodeId(99), Role::Gateway, identity.key());
    assert!(identity.renew(others, cluster.clock.now()).is_err(), "another node's certificate");
    let key = NodeKey::generate().unwrap();
    let others = cluster.issue(GATEWAY, Role::Gateway, &key);
    assert!(identity.renew(others, cluster.clock.now()).is_err(), "another key's certificate");
}

#[tokio::test]
async fn a_key_that_is_not_pinned_is_not_admitted() {
    let (cluster, address) = world().await;
    // Signed by our authority, for this node: but the map has another key.
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let pin = Pin { key: KeyHash([9; 32]), roles: Role::Gateway.into() };
    cluster.map.set(GATEWAY, pin);
    denied(gateway.dial_and_call(&address).await, "the peer refuses this node");
    // Nor a server: the one who dials knows why.
    let real = cluster.node(GATEWAY, Role::Gateway);
    cluster.map.set(MASTER, pin);
    denied(real.dial_and_call(&address).await, "not that of node 1 in the cluster map");
}

#[tokio::test]
async fn another_nodes_name_with_an_own_key_is_not_admitted() {
    let (cluster, address) = world().await;
    cluster.node(GATEWAY, Role::Gateway);
    // A real node of the cluster, with a certificate in the name of another.
    let own = NodeKey::generate().unwrap();
    cluster.map.set(NodeId(3), Pin { key: own.public().hash(), roles: Role::Gateway.into() });
    let certificate = cluster.issue(GATEWAY, Role::Gateway, &own);
    let thief = cluster.node_with(GATEWAY, Role::Gateway, own, certificate);
    denied(thief.dial_and_call(&address).await, "the peer refuses this node");
}

#[tokio::test]
async fn a_role_that_the_map_does_not_give_is_refused() {
    let (cluster, address) = world().await;
    let mut gateway = cluster.node(GATEWAY, Role::Gateway);
    gateway.role = Role::Chunkserver;
    denied(
        gateway.dial_and_call(&address).await,
        "node 2 says that it is a chunkserver, but joined as gateway",
    );
    let mut terms = cluster.node(NodeId(4), Role::Gateway).terms();
    terms.expects = Some(Role::Chunkserver);
    let other = cluster.node(NodeId(4), Role::Gateway);
    let link = cairn_cluster::wire::Dial::dial(&other.dialer(), &address).await.unwrap();
    let refused = cairn_cluster::wire::connect(link, &terms, echo).await;
    denied(refused, "node 1 is a master, not a chunkserver");
}

#[tokio::test]
async fn a_removed_node_is_refused_and_its_connection_ends() {
    let (cluster, address) = world().await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let peer = gateway.dial_and_call(&address).await.unwrap();
    cluster.map.remove(GATEWAY);
    let ended = tokio::time::timeout(PATIENCE, peer.closed()).await;
    ended.expect("the master ends the connection of a removed node");
    denied(gateway.dial_and_call(&address).await, "the peer refuses this node");
}

#[tokio::test]
async fn a_connection_does_not_outlive_its_certificate() {
    let (cluster, address) = world().await;
    let peer = cluster.node(GATEWAY, Role::Gateway).dial_and_call(&address).await.unwrap();
    cluster.clock.advance(31 * DAY);
    let ended = tokio::time::timeout(PATIENCE, peer.closed()).await.unwrap();
    assert!(ended.to_string().contains("certificate") || ended.to_string().contains("closed"));
}

#[tokio::test]
async fn plaintext_is_refused() {
    let cluster = Cluster::new();
    let listener = cluster.node(MASTER, Role::Master).listener(None).await;
    let address = listener.local_address().unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: cairn\r\n\r\n"[..],
        &crate::strange_bytes_end_the_connection::hello(GATEWAY.0, 3),
        &[0; 64],
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let shaken = listener.accept().await.unwrap().await;
        assert!(matches!(shaken, Err(Error::Invalid(_))), "{:?}", shaken.map(|_| ()));
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(!rest.windows(5).any(|window| window == b"Cairn"), "nothing was said in return");
    }
}

#[tokio::test]
async fn a_hello_of_another_cluster_is_refused() {
    let (cluster, address) = world().await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let link = cairn_cluster::wire::Dial::dial(&gateway.dialer(), &address).await.unwrap();
    let mut terms = gateway.terms();
    terms.cluster.0 ^= 1;
    let refused = cairn_cluster::wire::connect(link, &terms, echo).await;
    denied(refused, "this node is in cluster c1, the other in cluster c0");
}

#[tokio::test]
async fn a_plaintext_server_is_refused() {
    let cluster = Cluster::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let refused = cluster.node(GATEWAY, Role::Gateway).dial_and_call(&address).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let nobody = cluster.node(GATEWAY, Role::Gateway).dial_and_call("127.0.0.1:1").await;
    unavailable(nobody, "dialing");
}

#[test]
fn nothing_printed_holds_a_key() {
    let cluster = Cluster::new();
    let node = cluster.node(GATEWAY, Role::Gateway);
    let identity = &node.trust.identity;
    let pem = identity.key().to_pem();
    let ca: &Ca = &cluster.ca;
    let shown = format!("{identity:?} {:?} {ca:?} {:?} {CLUSTER:?}", identity.key(), pem);
    let body: String = pem.expose().lines().filter(|line| !line.starts_with("---")).collect();
    assert!(body.len() > 100);
    for start in 0..body.len() - 12 {
        assert!(!shown.contains(&body[start..start + 12]), "{shown}");
    }
    assert!(!shown.contains("PRIVATE") && shown.len() < 2500, "{shown}");
}

/// Only so that the raw client above is known to be admitted where it should be.
#[tokio::test]
async fn an_accepted_link_says_who_it_is() {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let listener = master.listener(None).await;
    let address = listener.local_address().unwrap().to_string();
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let dialing = tokio::spawn(async move { gateway.dial_and_call(&address).await });
    let link = listener.accept().await.unwrap().await.unwrap().unwrap();
    assert_eq!(link.peer.node, GATEWAY);
    let shown = link.peer.certificate.clone().unwrap();
    let renewed = cluster.desk().renew(GATEWAY, &shown).unwrap();
    assert_ne!(renewed, shown);
    denied(cluster.desk().renew(MASTER, &shown), "does not know node 1 by this key");
    let _peer = accept(link, &master.terms(), echo).await.unwrap();
    dialing.await.unwrap().unwrap();
}
