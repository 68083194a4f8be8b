//! `nfs3_client`, which was written by others from the standards: what it says and understands is
//! not what our own client does.

use nfs3_client::nfs3_types::nfs3::{self, Nfs3Option, Nfs3Result, nfs_fh3, nfsstat3, stable_how};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use tokio::net::TcpStream;

use crate::world::{World, run};

type Connection = Nfs3Connection<TokioIo<TcpStream>>;

const PART: usize = 700_000;

/// It asks the portmapper of the door for both ports.
async fn mount(world: &World, path: &str) -> Connection {
    let credential = opaque_auth::auth_unix(&auth_unix { uid: 0, gid: 0, ..auth_unix::default() });
    let builder = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", path);
    let builder = builder.portmapper_port(world.door.address.port()).credential(credential);
    builder.connect_from_privileged_port(false).mount().await.unwrap()
}

fn at<'a>(directory: &nfs_fh3, name: &'a str) -> nfs3::diropargs3<'a> {
    nfs3::diropargs3 { dir: directory.clone(), name: name.as_bytes().into() }
}

async fn create(client: &mut Connection, directory: &nfs_fh3, name: &str) -> nfs_fh3 {
    let attributes = nfs3::sattr3 { mode: Nfs3Option::Some(0o640), ..Default::default() };
    let how = nfs3::createhow3::GUARDED(attributes);
    let args = nfs3::CREATE3args { where_: at(directory, name), how };
    let made = client.create(&args).await.unwrap().unwrap();
    let Nfs3Option::Some(file) = made.obj else { panic!("it tells no handle") };
    file
}

/// The verifier.
async fn write(client: &mut Connection, file: &nfs_fh3, offset: u64, data: &[u8]) -> [u8; 8] {
    let args = nfs3::WRITE3args {
        file: file.clone(),
        offset,
        count: data.len() as u32,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(data),
    };
    let written = client.write(&args).await.unwrap().unwrap();
    assert_eq!((written.count as usize, written.committed), (data.len(), stable_how::UNSTABLE));
    written.verf.0
}

async fn read_all(client: &mut Connection, file: &nfs_fh3) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let (offset, count) = (whole.len() as u64, 1 << 20);
        let args = nfs3::READ3args { file: file.clone(), offset, count };
        let read = client.read(&args).await.unwrap().unwrap();
        assert_eq!(read.count as usize, read.data.as_ref().len());
        whole.extend_from_slice(read.data.as_ref());
        if read.eof {
            return whole;
        }
    }
}

/// Names, and the sizes that are told beside them.
async fn list(client: &mut Connection, dir: &nfs_fh3, bytes: u32) -> Vec<(String, Option<u64>)> {
    let mut listed = Vec::new();
    let (mut cookie, mut cookieverf) = (0, nfs3::cookieverf3::default());
    loop {
        let (dir, dircount, maxcount) = (dir.clone(), bytes, bytes);
        let args = nfs3::READDIRPLUS3args { dir, cookie, cookieverf, dircount, maxcount };
        let part = client.readdirplus(&args).await.unwrap().unwrap();
        cookieverf = part.cookieverf;
        for entry in part.reply.entries.0 {
            cookie = entry.cookie;
            let name = String::from_utf8(entry.name.0.as_ref().to_vec()).unwrap();
            let size = match entry.name_attributes {
                Nfs3Option::Some(attributes) => Some(attributes.size),
                Nfs3Option::None => None,
            };
            assert_eq!(entry.name_handle.is_some(), size.is_some());
            if name != "." && name != ".." {
                listed.push((name, size));
            }
        }
        if part.reply.eof {
            return listed;
        }
    }
}

#[test]
fn it_writes_reads_lists_renames_and_removes() {
    run(async {
        let world = World::new().await;
        let mut client = mount(&world, "/bucket").await;
        let top = client.root_nfs_fh3();
        let data: Vec<u8> = (0..3 * PART).map(|at| ((at * 7) >> 3) as u8).collect();
        let file = create(&mut client, &top, "file").await;
        let mut verifiers = Vec::new();
        for (part, bytes) in data.chunks(PART).enumerate() {
            verifiers.push(write(&mut client, &file, (part * PART) as u64, bytes).await);
        }
        let args = nfs3::COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let committed = client.commit(&args).await.unwrap().unwrap();
        assert!(verifiers.iter().all(|verifier| *verifier == committed.verf.0));
        assert!(read_all(&mut client, &file).await == data);

        for number in 0..40 {
            create(&mut client, &top, &format!("other-{number:02}")).await;
        }
        // In parts of some entries.
        let listed = list(&mut client, &top, 2048).await;
        let other = |number| (format!("other-{number:02}"), Some(0));
        let mut wanted: Vec<_> = (0..40).map(other).collect();
        // Of a file that is written to, clients are to ask for themselves.
        wanted.push(("file".into(), None));
        wanted.sort();
        let mut sorted = listed.clone();
        sorted.sort();
        assert_eq!(sorted, wanted);

        let args = nfs3::RENAME3args { from: at(&top, "file"), to: at(&top, "other-07") };
        client.rename(&args).await.unwrap().unwrap();
        let find = nfs3::LOOKUP3args { what: at(&top, "other-07") };
        assert_eq!(client.lookup(&find).await.unwrap().unwrap().object, file);
        assert!(read_all(&mut client, &file).await == data, "by its handle");
        let args = nfs3::REMOVE3args { object: at(&top, "other-07") };
        client.remove(&args).await.unwrap().unwrap();
        for gone in ["file", "other-07"] {
            let find = nfs3::LOOKUP3args { what: at(&top, gone) };
            let found = client.lookup(&find).await.unwrap();
            assert!(matches!(found, Nfs3Result::Err((nfsstat3::NFS3ERR_NOENT, _))), "{gone}");
        }
        assert_eq!(list(&mut client, &top, 32 << 10).await.len(), 39);
        client.unmount().await.unwrap();
    });
}
