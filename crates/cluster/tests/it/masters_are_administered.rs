//! The requests of operators to masters over gRPC, and who may make them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::rng::SeededRng;
use cairn_base::{
    Capability, CapabilitySet, Error, GroupId, JoinGrant, KeyHash, NodeId, Rng, Role, Roles,
    Timestamp, TokenHash, TokenId,
};
use cairn_cluster::control::messages::{Beat, ControlMethod, Copying, StoreState};
use cairn_cluster::control::{Edit, Move, Settings, Status};
use cairn_cluster::identity::{Desk, JoinToken, NodeKey, Tokens};
use cairn_cluster::limits::{ADMIN_NODE_CONNECTIONS, ADMIN_REQUEST_BYTES};
use cairn_cluster::wire::join;
use cairn_meta::ops::cluster::IssueToken;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::only_nodes_of_the_map_are_admitted::{Anybody, rustls_pem_key};
use crate::support::admin::{CHUNKSERVER, Office, Raw, framed};
use crate::support::{Cluster, GATEWAY, MASTER, Node, PATIENCE, denied, echo};

const DRAIN: &str = "/cairn.admin.v1.Admin/DrainNode";
const STATUS: &str = "/cairn.admin.v1.Admin/GetStatus";
const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn the_status_says_all_of_the_map_and_what_nodes_said_last() {
    let office = Office::new().await;
    let beat = Beat {
        address: "10.0.0.3:7400".into(),
        url: "http://10.0.0.3".into(),
        zone: "rack1".into(),
        weight: 7,
        disk: 0xd15c,
        version: "1.2".into(),
        store: StoreState {
            blocks: 1,
            live_bytes: 2,
            free_bytes: 3,
            corrupt: 4,
            healed: 5,
            is_full: true,
        },
        copying: vec![Copying { group: GroupId(1), blocks: 8, bytes: 9 }],
        groups: vec![(GroupId(1), 10)],
        ..Beat::default()
    };
    office.tell(&office.chunkserver, ControlMethod::Beat, &beat).await;
    // Every node may ask.
    for node in [&office.master, &office.gateway, &office.chunkserver] {
        let Status { map, nodes, sessions, master, batch, programs, fsck } =
            office.client(node).status().await.unwrap();
        assert_eq!((&map, fsck), (&office.map().await, None));
        assert_eq!(map.nodes[&CHUNKSERVER].zone, "rack1");
        assert_eq!((nodes.len(), sessions.len(), master), (1, 0, MASTER));
        assert!(batch > 0 && nodes[0].silent_ms < 60_000);
        assert_eq!(
            (nodes[0].node, nodes[0].disk, nodes[0].store),
            (CHUNKSERVER, 0xd15c, beat.store)
        );
        assert_eq!((&nodes[0].copying, &nodes[0].groups), (&beat.copying, &beat.groups));
        assert_eq!(nodes[0].version, "1.2");
        // The node of the test is no program: it says nothing of one.
        assert!(programs[&MASTER].versions.1 >= 2 && !programs[&MASTER].formats.is_empty());
    }
}

#[tokio::test]
async fn a_master_changes_the_map() {
    let office = Office::new().await;
    let admin = office.client(&office.master);
    admin.edit(Edit::Drain(CHUNKSERVER)).await.unwrap();
    assert!(office.map().await.nodes[&CHUNKSERVER].is_draining);
    admin.edit(Edit::Undrain(CHUNKSERVER)).await.unwrap();
    assert!(!office.map().await.nodes[&CHUNKSERVER].is_draining);
    admin.edit(Edit::Replicas { replicas: 5, minimum: 4 }).await.unwrap();
    admin.edit(Edit::Count(2)).await.unwrap();
    let map = office.map().await;
    assert_eq!((map.replicas, map.minimum), (5, 4));
    assert!(map.replica_counts.contains(&2));
    admin.edit(Edit::Remove(GATEWAY)).await.unwrap();
    assert!(!office.map().await.nodes.contains_key(&GATEWAY));
    let moved = Edit::Move(Move { group: GroupId(1), from: CHUNKSERVER, to: NodeId(9) });
    assert!(admin.edit(moved).await.is_err());
}

/// Nodes that are away may come back with any program.
#[tokio::test]
async fn a_capability_is_turned_on_when_all_nodes_are_there_and_have_it() {
    let office = Office::new().await;
    let admin = office.client(&office.master);
    let enable = Edit::Enable(Capability::RequiredFields);
    let before = office.map().await;
    let refused = admin.edit(enable).await.unwrap_err();
    assert!(matches!(&refused, Error::Conflict(text) if text.contains("start nodes 2, 3")));
    assert_eq!(office.map().await, before);
    let (beat, controller) = (Beat::default(), office.control.serving().unwrap());
    office.tell(&office.gateway, ControlMethod::Beat, &beat).await;
    controller.look_around().await.unwrap();
    let refused = admin.edit(enable).await.unwrap_err();
    assert!(matches!(&refused, Error::Conflict(text) if text.contains("start nodes 3,")));
    office.tell(&office.chunkserver, ControlMethod::Beat, &beat).await;
    controller.look_around().await.unwrap();
    admin.edit(enable).await.unwrap();
    assert!(office.map().await.capabilities.contains(Capability::RequiredFields));
    let status = admin.status().await.unwrap();
    assert_eq!(status.map.capabilities, CapabilitySet::own());
    assert_eq!(status.programs[&GATEWAY].capabilities, CapabilitySet::own());
}

#[tokio::test]
async fn changes_and_refusals_are_recorded() {
    let office = Office::new().await;
    let admin = office.client(&office.master);
    admin.status().await.unwrap();
    admin.edit(Edit::Drain(CHUNKSERVER)).await.unwrap();
    admin.edit(Edit::Drain(NodeId(9))).await.unwrap_err();
    office.client(&office.gateway).edit(Edit::Drain(CHUNKSERVER)).await.unwrap_err();
    let (hash, roles) = (TokenHash::of(&[5; 32]), Roles::NONE);
    let grant = JoinGrant {
        hash,
        roles: roles.with(Role::Gateway),
        expires: Timestamp(i64::MAX),
        used: None,
    };
    admin.issue(TokenId(7), &grant).await.unwrap();
    office.audit.close();
    let lines = office.audit.take(Duration::ZERO).unwrap().bytes;
    let lines = String::from_utf8(lines).unwrap();
    let records: Vec<&str> = lines.lines().collect();
    let wanted = [
        ("edit", "done", MASTER, "Drain"),
        ("edit", "failed", MASTER, "Drain"),
        ("edit", "refused", GATEWAY, "Drain"),
        ("issue_token", "done", MASTER, "token 7"),
    ];
    assert_eq!(records.len(), wanted.len(), "{lines}");
    for (record, (operation, outcome, node, resource)) in records.into_iter().zip(wanted) {
        for part in [
            "\"door\":\"admin\"".to_owned(),
            format!("\"operation\":\"{operation}\",\"outcome\":\"{outcome}\""),
            format!("\"node\":\"{node}\",\"source\":\"127.0.0.1\""),
            resource.to_owned(),
        ] {
            assert!(record.contains(&part), "{part} is not in {record}");
        }
    }
}

#[tokio::test]
async fn what_the_master_says_against_it_arrives_as_it_is() {
    let office = Office::new().await;
    let admin = office.client(&office.master);
    let said = async |edit| admin.edit(edit).await.unwrap_err().to_string();
    assert_eq!(said(Edit::Drain(NodeId(9))).await, "not found: node 9");
    assert_eq!(
        said(Edit::Remove(CHUNKSERVER)).await,
        "changed meanwhile, try again: node 3 is in 1 groups: drain it, and wait until it is in \
         none"
    );
    assert_eq!(
        said(Edit::Replicas { replicas: 2, minimum: 3 }).await,
        "invalid: cluster map: 2 replicas with a minimum of 3: use 1 to 5 replicas, \
         and a minimum of at most that"
    );
    assert!(matches!(admin.edit(Edit::Count(6)).await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn a_token_that_was_issued_lets_one_node_in() {
    let office = Office::new().await;
    let (id, hash) = (TokenId(7), TokenHash::of(&[5; 32]));
    let roles = Roles::from(Role::Gateway);
    let grant = JoinGrant { hash, roles, expires: Timestamp(i64::MAX), used: None };
    denied(office.client(&office.gateway).issue(id, &grant).await, "only masters");
    office.client(&office.master).issue(id, &grant).await.unwrap();
    let applicant = cairn_base::Applicant { hash, key: KeyHash([1; 32]), roles };
    let node = office.control.redeem(id, applicant, Timestamp(0)).await.unwrap();
    assert_eq!(office.map().await.pin(node).unwrap().roles, roles);
    let none = JoinGrant { roles: Roles::NONE, ..grant };
    let refused = office.client(&office.master).issue(id, &none).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// `cairn node` issues a token for each of its own roles at every start: a start that ended after
/// the masters had let the node in, and before it knew that, must not be the last one.
#[tokio::test]
async fn a_node_that_was_interrupted_while_it_joined_asks_again_with_another_token() {
    let office = Office::new().await;
    let desk = Arc::into_inner(office.cluster.desk()).unwrap();
    let desk = Desk { tokens: Arc::new(office.control.clone()), ..desk };
    let address = office.master.listen_with(Some(Arc::new(desk)), echo).await;
    let issued = async |roles: Roles| {
        let token = office.cluster.token(vec![address.clone()], roles);
        let grant = token.grant(Timestamp(i64::MAX));
        office.client(&office.master).issue(token.id, &grant).await.unwrap();
        token
    };
    let ask = async |token: &JoinToken, key: &NodeKey| {
        join(token, key, Arc::clone(&office.cluster.clock) as _).await
    };
    for role in Role::ALL {
        let (key, roles) = (NodeKey::generate().unwrap(), Roles::from(role));
        let (first, second) = (issued(roles).await, issued(roles).await);
        let node = ask(&first, &key).await.unwrap().node;
        let map = office.map().await;
        for token in [&first, &second, &first, &second] {
            assert_eq!(ask(token, &key).await.unwrap().node, node, "{role}");
        }
        assert_eq!(office.map().await, map, "it is one node, and nothing of it has changed");
        // Each of the tokens is used up.
        let other = NodeKey::generate().unwrap();
        for token in [&first, &second] {
            denied(ask(token, &other).await, "has used it");
        }
        let more = issued(roles.with(Role::Master).with(Role::Gateway)).await;
        let refused = ask(&more, &key).await;
        assert!(matches!(&refused, Err(Error::Exists(text)) if text.contains("new directory")));
        // A node that was removed is not let in under its former number.
        office.client(&office.master).edit(Edit::Remove(node)).await.unwrap();
        let third = issued(roles).await;
        assert_ne!(ask(&third, &key).await.unwrap().node, node);
    }
}

/// A second master without a database would have no metadata: it is told so when it would join, not
/// when it is started.
#[tokio::test]
async fn a_master_that_has_the_metadata_stays_alone() {
    let office = Office::with(Settings { is_alone: true, ..Settings::default() }).await;
    let hash = TokenHash::of(&[5; 32]);
    for (id, roles) in [
        (TokenId(7), Roles::from(Role::Master)),
        (TokenId(8), Roles::from(Role::Gateway).with(Role::Master)),
    ] {
        let grant = JoinGrant { hash, roles, expires: Timestamp(i64::MAX), used: None };
        let issued = office.client(&office.master).issue(id, &grant).await;
        assert!(issued.unwrap_err().to_string().contains("no second master"), "{roles}");
        // As an older version issued it.
        let (bytes, bits) = (hash.to_bytes(), roles.bits());
        let older = IssueToken { id, hash: bytes, roles: bits, expires: Timestamp(i64::MAX) };
        office.meta.run(&Caller::system(), older).await.unwrap();
        let applicant = cairn_base::Applicant { hash, key: KeyHash([1; 32]), roles };
        let joined = office.control.redeem(id, applicant, Timestamp(0)).await;
        assert!(joined.unwrap_err().to_string().contains("no second master"), "{roles}");
        assert_eq!(office.map().await.nodes.len(), 3);
    }
}

#[tokio::test]
async fn only_masters_change_anything() {
    let office = Office::new().await;
    let before = office.map().await;
    for node in [&office.gateway, &office.chunkserver] {
        for edit in [
            Edit::Drain(CHUNKSERVER),
            Edit::Undrain(CHUNKSERVER),
            Edit::Remove(GATEWAY),
            Edit::Replicas { replicas: 1, minimum: 1 },
            Edit::Count(1),
            Edit::Enable(Capability::RequiredFields),
            Edit::Move(Move { group: GroupId(1), from: CHUNKSERVER, to: GATEWAY }),
        ] {
            denied(office.client(node).edit(edit).await, "change the cluster: only masters may");
        }
    }
    assert_eq!(office.map().await, before);
}

#[tokio::test]
async fn strangers_get_no_answer() {
    let office = Office::new().await;
    // The same ids, another authority.
    let other = Cluster::new();
    let foreign = other.node(MASTER, Role::Master);
    office.unserved(&foreign, &[&office.address], "certificate").await;
    // Nodes that do not check the server are refused by it: the foreign one; one of this authority
    // that is not in the map; one with another key than in the map.
    let unknown = office.cluster.node(NodeId(9), Role::Master);
    let thief = office.cluster.node(GATEWAY, Role::Master);
    for node in [&foreign, &unknown, &thief] {
        let refused = shake(&office.address, Some(node)).await;
        assert!(refused.contains("received fatal alert"), "{refused}");
        office.unserved(node, &[&office.address], "").await;
    }
    // HTTP/2 without TLS.
    let mut stream = TcpStream::connect(&office.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    assert!(said.len() < 16, "no more than an alert: {said:?}");
}

#[tokio::test]
async fn who_shows_no_certificate_gets_no_answer() {
    let office = Office::new().await;
    let refused = shake(&office.address, None).await;
    assert!(refused.contains("CertificateRequired"), "{refused}");
}

/// The reply to a client that trusts any server, and shows the certificate of `node`.
async fn shake(address: &str, node: Option<&Node>) -> String {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let mut config = match node.map(|node| &node.trust.identity) {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let key = rustls_pem_key(identity.key());
            config.with_client_auth_cert(vec![identity.certificate()], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = rustls::pki_types::ServerName::try_from("x").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    stream.read(&mut [0; 1]).await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_expired_certificate_is_not_admitted_and_ends_its_connection() {
    let office = Office::new().await;
    let mut raw = Raw::dial(&office.gateway, &office.address).await.unwrap();
    assert_eq!(raw.post(STATUS, framed(b"", 0)).await.unwrap(), 0);
    office.cluster.clock.advance(31 * DAY);
    assert_ne!(raw.post(STATUS, framed(b"", 0)).await.unwrap_or(14), 0);
    raw.ended().await;
    office.unserved(&office.gateway, &[&office.address], "certificate").await;
}

#[tokio::test]
async fn a_removed_node_is_refused_and_its_connection_ends() {
    let office = Office::new().await;
    let mut raw = Raw::dial(&office.gateway, &office.address).await.unwrap();
    assert_eq!(raw.post(STATUS, framed(b"", 0)).await.unwrap(), 0);
    office.client(&office.master).edit(Edit::Remove(GATEWAY)).await.unwrap();
    assert!(office.master.trust.pins.pin(GATEWAY).is_none());
    assert!(matches!(raw.post(STATUS, framed(b"", 0)).await, Ok(7) | Err(_)));
    raw.ended().await;
    office.unserved(&office.gateway, &[&office.address], "received fatal alert").await;
}

#[tokio::test]
async fn a_standby_sends_to_the_next_master() {
    let office = Office::new().await;
    let standby = office.standby().await;
    let both = office.client_of(&office.master, &["127.0.0.1:1", &standby, &office.address]);
    both.edit(Edit::Drain(CHUNKSERVER)).await.unwrap();
    assert!(both.status().await.unwrap().map.nodes[&CHUNKSERVER].is_draining);
    // A client that asks only masters that do not serve hears why.
    office.unserved(&office.master, &[&standby], "this master stands by").await;
    office.control.serve(None);
    let all = ["127.0.0.1:1", &standby, &office.address];
    office.unserved(&office.master, &all, "this master stands by").await;
    let mut raw = Raw::dial(&office.gateway, &standby).await.unwrap();
    assert_eq!(raw.post(STATUS, framed(b"", 0)).await.unwrap(), 14);
}

#[tokio::test]
async fn a_master_that_says_nothing_holds_up_nobody() {
    let office = Office::new().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let admin = office.client_of(&office.master, &[&address, &office.address]);
    // It is given up after a while, which may be over on a busy machine before the next answers.
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        let given_up = async {
            let (mut stream, _) = silent.accept().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        tokio::select! {
            biased;
            drained = admin.edit(Edit::Drain(CHUNKSERVER)) => return drained.unwrap(),
            () = given_up => {}
        }
    }
    panic!("the next is never asked before the first is given up");
}

#[tokio::test]
async fn the_master_that_answered_last_is_asked_first() {
    let office = Office::new().await;
    let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = first.local_addr().unwrap().to_string();
    let admin = office.client_of(&office.master, &[&address, &office.address]);
    let refusing = async {
        let mut dialed = 0;
        loop {
            drop(first.accept().await.unwrap());
            dialed += 1;
            assert_eq!(dialed, 1, "it is dialed by the first call alone");
        }
    };
    let asking = async {
        for _ in 0..5 {
            admin.status().await.unwrap();
        }
    };
    tokio::select! {
        () = refusing => {}
        () = asking => {}
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_refused() {
    let office = Office::new().await;
    let mut raw = Raw::dial(&office.master, &office.address).await.unwrap();
    let long = vec![0; ADMIN_REQUEST_BYTES + 1];
    for (message, length) in [(&long[..], long.len()), (&b""[..], u32::MAX as usize)] {
        let code = raw.post(DRAIN, framed(message, length)).await;
        assert!(matches!(code, Ok(8 | 11) | Err(_)), "{code:?}");
    }
    let mut raw = Raw::dial(&office.master, &office.address).await.unwrap();
    let head = format!("/{}", "x".repeat(60_000));
    assert!(raw.post(&head, framed(b"", 0)).await.is_err());
    office.client(&office.master).status().await.unwrap();
}

#[tokio::test]
async fn unknown_fields_are_skipped_and_unknown_methods_refused() {
    let office = Office::new().await;
    let mut raw = Raw::dial(&office.master, &office.address).await.unwrap();
    // Field 1: node 3; field 1000: a text; field 77: a number.
    let message = b"\x08\x03\xc2\x3e\x03new\xe8\x04\x05";
    assert_eq!(raw.post(DRAIN, framed(message, message.len())).await.unwrap(), 0);
    assert!(office.map().await.nodes[&CHUNKSERVER].is_draining);
    for path in ["/cairn.admin.v1.Admin/Explode", "/cairn.admin.v2.Admin/DrainNode", "/"] {
        assert_eq!(raw.post(path, framed(b"", 0)).await.unwrap(), 12, "{path}");
    }
    // No message at all, half of one, one of a role that this version does not know.
    assert_ne!(raw.post(DRAIN, Bytes::new()).await.unwrap(), 0);
    assert_ne!(raw.post(DRAIN, framed(b"\x08", 9)).await.unwrap_or(13), 0);
    let issue = b"\x08\x01\x12\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x1a\x01\x63";
    let path = "/cairn.admin.v1.Admin/IssueToken";
    assert_eq!(raw.post(path, framed(issue, issue.len())).await.unwrap(), 3);
}

#[tokio::test]
async fn garbage_changes_nothing_and_the_master_goes_on() {
    let office = Office::new().await;
    let before = office.map().await;
    let rng = SeededRng::new(11);
    let paths = ["MoveMember", "SetReplicas", "AddReplicaCount", "EnableCapability", "IssueToken"];
    let mut raw = Raw::dial(&office.gateway, &office.address).await.unwrap();
    for round in 0..500 {
        let mut bytes = vec![0; rng.below(80) as usize];
        rng.fill(&mut bytes);
        let body = match round % 3 {
            0 => Bytes::from(bytes),
            1 => framed(&bytes, rng.below(90) as usize),
            _ => framed(&bytes, bytes.len()),
        };
        let path = format!("/cairn.admin.v1.Admin/{}", paths[round % paths.len()]);
        if raw.post(&path, body).await.is_err() {
            raw = Raw::dial(&office.gateway, &office.address).await.unwrap();
        }
    }
    assert_eq!(office.map().await, before);
    office.client(&office.master).status().await.unwrap();
}

#[tokio::test]
async fn connections_of_a_node_are_limited() {
    let office = Office::new().await;
    let mut held = Vec::new();
    for _ in 0..ADMIN_NODE_CONNECTIONS {
        let mut raw = Raw::dial(&office.gateway, &office.address).await.unwrap();
        assert_eq!(raw.post(STATUS, framed(b"", 0)).await.unwrap(), 0);
        held.push(raw);
    }
    office.unserved(&office.gateway, &[&office.address], "connection").await;
    // Others are not kept out.
    office.client(&office.master).status().await.unwrap();
    drop(held);
    let waiting = async { while office.client(&office.gateway).status().await.is_err() {} };
    tokio::time::timeout(PATIENCE, waiting).await.expect("there is room again");
}

#[tokio::test]
async fn a_master_that_stops_answers_no_more() {
    let office = Office::new().await;
    let mut raw = Raw::dial(&office.gateway, &office.address).await.unwrap();
    assert_eq!(raw.post(STATUS, framed(b"", 0)).await.unwrap(), 0);
    office.stop().await;
    raw.ended().await;
}
