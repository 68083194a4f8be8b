//! A call that comes twice acts once, on whatever connection.

use crate::client::{Args, NFS, call};
use crate::world::{World, run};

const NOENT: u32 = 2;
const EXIST: u32 = 17;

#[test]
fn a_call_that_comes_twice_acts_once() {
    run(async {
        let world = World::new().await;
        let (mut one, mut other) = (world.client().await, world.client().await);
        let top = one.mount("/bucket").await.unwrap();
        one.create(&top, "file").await.unwrap();
        let name = |name: &str| Args::new().bytes(&top).bytes(name.as_bytes());
        let moved = {
            let mut both = name("file");
            both.0.extend(name("moved").0);
            both
        };
        let created = name("new").number(1).mode(Some(0o600));
        for (procedure, args, again) in [
            (14, moved, NOENT),
            (12, name("moved"), NOENT),
            (8, created, EXIST),
            (9, name("directory").mode(None), EXIST),
            (13, name("directory"), NOENT),
        ] {
            let bytes = call(1000 + procedure, (NFS, 3, procedure), (0, 0), &args);
            for turn in 0..3 {
                let client = if turn == 1 { &mut other } else { &mut one };
                let mut res = client.ask(&bytes).await;
                assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, 0], "{procedure}");
            }
            // Another call with the same arguments is another call, also with the same number.
            let (status, _) = one.nfs(procedure, args.clone()).await;
            assert_eq!(status, again, "{procedure}");
            let same = call(1000 + procedure, (NFS, 3, procedure), (0, 7), &args);
            let mut res = other.ask(&same).await;
            assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, again], "{procedure}");
        }
    });
}
