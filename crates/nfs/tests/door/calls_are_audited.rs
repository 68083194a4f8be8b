//! Each call that changes something, and each that is refused, is told to the audit once.

use cairn_base::UserId;
use cairn_nfs::{Outcome, Ran};

use crate::client::{Args, Client, NFS, call};
use crate::world::{World, export, run};

const ACCES: u32 = 13;
const EXIST: u32 = 17;
const ROFS: u32 = 30;
const BADHANDLE: u32 = 10_001;

/// Every procedure that changes something, by its number and its arguments.
fn changes(top: &[u8], file: &[u8]) -> Vec<(&'static str, u32, Args)> {
    let at = |name: &str| Args::new().bytes(top).bytes(name.as_bytes());
    let set = |args: Args| args.mode(Some(0o600));
    vec![
        ("setattr", 2, set(Args::new().bytes(file)).number(0)),
        ("write", 7, Args::new().bytes(file).long(0).number(1).number(2).bytes(b"x")),
        ("create", 8, set(at("created").number(1))),
        ("mkdir", 9, set(at("made"))),
        ("symlink", 10, set(at("symlink")).bytes(b"target")),
        ("mknod", 11, set(at("fifo").number(7))),
        ("link", 15, Args::new().bytes(file).bytes(top).bytes(b"linked")),
        ("rename", 14, at("linked").bytes(top).bytes(b"renamed")),
        ("remove", 12, at("created")),
        ("rmdir", 13, at("made")),
    ]
}

fn names(ran: &[Ran]) -> Vec<&'static str> {
    ran.iter().map(|ran| ran.procedure).collect()
}

async fn look(client: &mut Client, top: &[u8], file: &[u8]) {
    client.getattr(top).await.unwrap();
    client.lookup(top, "file").await.unwrap();
    client.read(file, 0, 10).await.unwrap();
    client.list(top, 0, 4096, true).await.unwrap();
}

#[test]
fn changes_and_refusals_and_nothing_else() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let told = || std::mem::take(&mut *world.door.ran.lock().unwrap());
        let file = client.create(&top, "file").await.unwrap();
        assert_eq!(names(&told()), ["create"]);
        look(&mut client, &top, &file).await;
        client.commit(&file).await.unwrap();
        assert_eq!(names(&told()), [""; 0]);
        for (name, procedure, args) in changes(&top, &file) {
            assert_eq!(client.nfs(procedure, args).await.0, 0, "{name}");
            let told = told();
            assert_eq!(names(&told), [name]);
            let Ran { status, outcome, is_refused, client, uid, user, object, .. } = &told[0];
            assert_eq!((*status, *outcome, *is_refused), (Some(0), Outcome::Fine, false));
            assert_eq!(
                (client.to_string(), *uid, *user),
                ("127.0.0.1".into(), Some(0), Some(UserId(2)))
            );
            assert!(object.starts_with("(inode "), "{object}");
        }
        assert_eq!(client.create(&top, "file").await, Err(EXIST));
        let ran = told();
        assert_eq!((ran.len(), ran[0].outcome, ran[0].is_refused), (1, Outcome::Refused, false));
        assert!(ran[0].object.ends_with("/file"), "{}", ran[0].object);
        // The mode of the file is 0600, and the user another one.
        client.uid = 7;
        assert_eq!(client.read(&file, 0, 10).await, Err(ACCES));
        assert_eq!(client.mount("/none").await, Err(ACCES));
        assert_eq!(client.getattr(&[7; 44]).await, Err(BADHANDLE));
        let ran = told();
        assert_eq!(names(&ran), ["read", "mount_mnt", "getattr"]);
        assert!(ran.iter().all(|ran| ran.is_refused && ran.uid == Some(7)));
        client.uid = 0;
        world
            .export_again(cairn_fs::ops::exports::AddExport {
                read_only: true,
                ..export("bucket", "alice")
            })
            .await;
        let top = client.mount("/bucket").await.unwrap();
        let file = client.lookup(&top, "file").await.unwrap().0;
        look(&mut client, &top, &file).await;
        for (name, procedure, args) in changes(&top, &file) {
            assert_eq!(client.nfs(procedure, args).await.0, ROFS, "{name}");
            let told = told();
            assert_eq!(names(&told), [name]);
            assert!(told[0].is_refused);
        }
    });
}

#[test]
fn a_call_that_is_sent_again_is_told_once() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let args = Args::new().bytes(&top).bytes(b"made").mode(Some(0o755));
        let sent = call(7777, (NFS, 3, 9), (0, 0), &args);
        for _ in 0..3 {
            client.ask(&sent).await;
        }
        assert_eq!(names(&world.door.ran.lock().unwrap()), ["mkdir"]);
    });
}
