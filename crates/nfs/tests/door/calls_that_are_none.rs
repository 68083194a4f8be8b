//! What is no call of this door gets a reply that says so, or none, and changes nothing.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::client::{Args, Client, MOUNT, NFS, Res, call};
use crate::world::{World, run};

const PATIENCE: Duration = Duration::from_secs(300);

const BADHANDLE: u32 = 10_001;

/// The reply to a call with these numbers, behind its xid.
async fn outcome(client: &mut Client, of: (u32, u32, u32), args: &Args) -> Vec<u32> {
    let mut res: Res = client.ask(&call(1, of, (0, 0), args)).await;
    let head = [(); 4].map(|()| res.number());
    assert_eq!(head, [1, 0, 0, 0], "accepted");
    let mut rest = vec![res.number()];
    if rest[0] == 2 {
        rest.extend([res.number(), res.number()]);
    }
    res.end();
    rest
}

#[test]
fn other_programs_versions_and_procedures_are_told_apart() {
    run(async {
        let world = World::new().await;
        let mut client = world.client().await;
        let none = Args::new();
        for version in [0, 1, 2, 4, u32::MAX] {
            for program in [NFS, MOUNT] {
                assert_eq!(outcome(&mut client, (program, version, 0), &none).await, [2, 3, 3]);
            }
        }
        assert_eq!(outcome(&mut client, (100_000, 4, 0), &none).await, [2, 2, 2]);
        for program in [100_021, 100_024, 100_227, 0] {
            assert_eq!(outcome(&mut client, (program, 3, 0), &none).await, [1]);
        }
        assert_eq!(outcome(&mut client, (NFS, 3, 22), &none).await, [3]);
        assert_eq!(outcome(&mut client, (MOUNT, 3, 6), &none).await, [3]);
        assert_eq!(outcome(&mut client, (NFS, 3, 0), &none).await, [0]);
    });
}

#[test]
fn arguments_that_end_early_or_late_are_garbage() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let handle = || Args::new().bytes(&top);
        let name = || handle().bytes(b"name");
        let whole = [
            (1, handle()),
            (2, handle().mode(Some(0o700)).number(0)),
            (3, name()),
            (4, handle().number(63)),
            (5, handle()),
            (6, handle().long(0).number(9)),
            (7, handle().long(0).number(3).number(0).bytes(b"abc")),
            (8, name().number(1).mode(None)),
            (9, name().mode(None)),
            (10, name().mode(None).bytes(b"target")),
            (11, name().number(7).mode(None)),
            (12, name()),
            (13, name()),
            (14, {
                let mut both = name();
                both.0.extend(name().0);
                both
            }),
            (15, handle().bytes(&top).bytes(b"name")),
            (16, handle().long(0).long(0).number(4096)),
            (17, handle().long(0).long(0).number(4096).number(4096)),
            (18, handle()),
            (19, handle()),
            (20, handle()),
            (21, handle().long(0).number(0)),
        ];
        for (procedure, args) in whole {
            for len in (0..args.0.len()).step_by(4) {
                let short = Args(args.0[..len].to_vec());
                let found = outcome(&mut client, (NFS, 3, procedure), &short).await;
                assert_eq!(found, [4], "{procedure}: {len} bytes");
            }
            let long = args.number(0);
            let found = outcome(&mut client, (NFS, 3, procedure), &long).await;
            assert_eq!(found, [4], "{procedure}: too many bytes");
        }
        // A length that lies.
        let lies = Args::new().number(u32::MAX);
        assert_eq!(outcome(&mut client, (NFS, 3, 1), &lies).await, [4]);
        let lies = handle().long(0).number(4).number(0).bytes(b"abc");
        assert_eq!(outcome(&mut client, (NFS, 3, 7), &lies).await, [4]);
        assert_eq!(client.list(&top, 0, 4096, false).await.unwrap().0.len(), 2, "nothing made");
    });
}

#[test]
fn handles_that_were_not_given_open_nothing() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        for at in 0..top.len() {
            let mut forged = top.clone();
            forged[at] ^= 1;
            assert_eq!(client.getattr(&forged).await, Err(BADHANDLE), "byte {at}");
            assert_eq!(client.create(&forged, "x").await, Err(BADHANDLE));
        }
        for len in [0, 1, top.len() - 1] {
            assert_eq!(client.getattr(&top[..len]).await, Err(BADHANDLE));
        }
        assert_eq!(client.getattr(&[0; 64]).await, Err(BADHANDLE));
        assert!(client.getattr(&top).await.is_ok());
    });
}

#[test]
fn a_stream_that_means_nothing_is_closed_and_others_go_on() {
    run(async {
        let world = World::new().await;
        let mut client = world.client().await;
        let reply = Args::new().number(7).number(1).number(0).0;
        let mut not_a_call = (reply.len() as u32 | 1 << 31).to_be_bytes().to_vec();
        not_a_call.extend(reply);
        for nonsense in
            [vec![0xff; 4], vec![0x7f, 0xff, 0xff, 0xff], vec![0x80, 0, 0, 0], not_a_call]
        {
            let mut other = world.client().await;
            other.stream.write_all(&nonsense).await.unwrap();
            let mut byte = [0];
            let read = timeout(PATIENCE, other.stream.read(&mut byte)).await.unwrap();
            assert!(matches!(read, Ok(0) | Err(_)), "{nonsense:?}");
            assert!(client.mount("/bucket").await.is_ok());
        }
        // Kerberos, and calls of another version of RPC, are refused and the connection goes on.
        let kerberos = Args::new().number(9).number(0).number(2).number(NFS).number(3).number(0);
        let kerberos = kerberos.number(6).bytes(&[0; 8]).number(0).number(0);
        let mut res = client.ask(&kerberos.0).await;
        assert_eq!([(); 4].map(|()| res.number()), [1, 1, 1, 1]);
        assert!(client.mount("/bucket").await.is_ok());
    });
}

#[test]
fn mount_is_answered_to_datagrams_and_nfs_is_not() {
    run(async {
        let (world, _, top) = World::mounted().await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(world.door.address).await.unwrap();
        let mut buffer = [0; 1000];
        socket.send(b"nonsense").await.unwrap();
        let path = Args::new().bytes(b"/bucket");
        socket.send(&call(5, (MOUNT, 3, 1), (0, 0), &path)).await.unwrap();
        let len = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
        let wanted = Args::new().number(5).number(1).number(0).number(0).number(0).number(0);
        let wanted = wanted.number(0).bytes(&top).number(1).number(1);
        assert_eq!(buffer[..len], wanted.0);
        socket.send(&call(6, (NFS, 3, 0), (0, 0), &Args::new())).await.unwrap();
        let len = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
        let wanted = Args::new().number(6).number(1).number(0).number(0).number(0).number(1);
        assert_eq!(buffer[..len], wanted.0, "no such program");
    });
}

#[test]
fn the_portmapper_says_where_this_door_is() {
    const PORTMAP: u32 = 100_000;
    run(async {
        let world = World::new().await;
        let port = u32::from(world.door.address.port());
        let mut client = world.client().await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(world.door.address).await.unwrap();
        let asked = [
            ([NFS, 3, 6], port),
            ([MOUNT, 3, 6], port),
            ([MOUNT, 3, 17], port),
            ([NFS, 3, 17], 0),
            ([NFS, 4, 6], 0),
            ([100_021, 4, 6], 0),
        ];
        for (mapping, expected) in asked {
            let args = mapping.into_iter().fold(Args::new(), Args::number).number(0);
            let call = call(9, (PORTMAP, 2, 3), (0, 0), &args);
            let mut res = client.ask(&call).await;
            assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, expected], "{mapping:?}");
            socket.send(&call).await.unwrap();
            let mut buffer = [0; 100];
            let len = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
            assert_eq!(buffer[..len][len - 4..], expected.to_be_bytes());
        }
        // Nobody registers here.
        let args = [NFS, 3, 6, 1].into_iter().fold(Args::new(), Args::number);
        let mut res = client.ask(&call(9, (PORTMAP, 2, 1), (0, 0), &args)).await;
        assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, 0]);
        let mut res = client.call_version((PORTMAP, 2, 4), Args::new()).await;
        let mut known = 0;
        while res.number() == 1 {
            assert_eq!([(); 4].map(|()| res.number())[3], port);
            known += 1;
        }
        assert_eq!(known, 3);
        res.end();
    });
}
