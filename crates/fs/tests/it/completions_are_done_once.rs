//! Completions that are asked for again, or twice at once: the object has all its bytes, and
//! garbage collection takes none of them.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use cairn_auth::Caller;
use cairn_base::{BodyId, Error};
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::multipart::{AbortUpload, CompleteUpload, TakeParts, TakenPart, UploadName};
use cairn_fs::ops::put_object::PutReply;

use crate::world::{BUCKET, World, data, root, run};

/// The two halves of a completion, so that others can come in between.
async fn take(
    world: &World,
    name: &UploadName,
    parts: &[TakenPart],
    body: BodyId,
) -> Result<(u64, u64), Error> {
    let verb = TakeParts {
        name: name.clone(),
        session: world.fs.session(),
        body,
        change: None,
        offset: 0,
        parts: parts.to_vec(),
        last: true,
    };
    let taken = world.fs.run(&root(), verb).await?;
    Ok((taken.upload.change, taken.offset))
}

async fn publish(
    world: &World,
    name: &UploadName,
    body: BodyId,
    (change, size): (u64, u64),
) -> Result<PutReply, Error> {
    let verb = CompleteUpload {
        name: name.clone(),
        session: world.fs.session(),
        body,
        change,
        size,
        etag: "00000000000000000000000000000000-2".into(),
        checksums: Vec::new(),
        part_count: 2,
        conditions: Default::default(),
    };
    world.fs.run(&root(), verb).await
}

/// Lets it go on until it waits, and then until it has what it waits for: others may come in now.
/// The result, if it is done.
async fn step<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut has_waited = false;
    poll_fn(|context| {
        if has_waited {
            return Poll::Ready(None);
        }
        match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                has_waited = true;
                Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn of_two_completions_at_once_one_is_done() {
    run(async {
        let world = World::new(1).await;
        let (one, two) = (data(1, 5 << 20), data(2, 6 << 20));
        let whole = [&one[..], &two].concat();
        for order in 0..4 {
            let key = format!("k{order}");
            let name = world.create_upload(&key).await;
            let parts =
                [world.put_part(&name, 1, &one).await, world.put_part(&name, 2, &two).await];
            let body = |counter| BodyId { session: world.fs.session(), counter };
            let (first, second) = (body(1 << 40 | order), body(1 << 41 | order));
            let earlier = take(&world, &name, &parts, first).await.unwrap();
            let later = take(&world, &name, &parts, second).await.unwrap();
            // In either order only that one is done which has the parts.
            if order % 2 == 0 {
                let refused = publish(&world, &name, first, earlier).await.unwrap_err();
                assert!(matches!(refused, Error::Conflict(_)), "{refused}");
            }
            publish(&world, &name, second, later).await.unwrap();
            let refused = publish(&world, &name, first, earlier).await.unwrap_err();
            assert!(matches!(refused, Error::NotFound(_)), "{refused}");
            world.collect().await;
            assert!(world.get(&key).await.unwrap() == whole, "order {order}");
        }
    });
}

/// At each moment of one completion, another one takes the parts and comes to nothing.
#[test]
fn a_completion_is_done_though_another_began_later() {
    run(async {
        let world = World::new(7).await;
        let (one, two) = (data(1, 5 << 20), data(2, 20_000));
        let whole = [&one[..], &two].concat();
        let (caller, mut steps, mut before, mut is_overtaken) = (root(), 0, None, false);
        for round in 0..200 {
            let key = format!("k{round}");
            let name = world.create_upload(&key).await;
            let parts =
                [world.put_part(&name, 1, &one).await, world.put_part(&name, 2, &two).await];
            let conditions = Default::default();
            let (named, asked) = (parts.to_vec(), name.clone());
            let complete = world.fs.complete_upload(&caller, asked, named, conditions);
            let mut complete = Box::pin(complete);
            let mut done = None;
            for _ in 0..steps {
                if done.is_none() {
                    done = step(&mut complete).await;
                }
            }
            let was_done = done.is_some();
            let body = BodyId { session: world.fs.session(), counter: 1 << 40 | round };
            // How often the upload has changed by then: once more if the first one had the parts.
            let change = take(&world, &name, &parts, body).await.ok().map(|(change, _)| change);
            before = if steps == 0 { change } else { before };
            is_overtaken |= change > before;
            let done = match done {
                Some(done) => done,
                None => complete.await,
            };
            done.unwrap();
            assert!(world.get(&key).await.unwrap() == whole, "after {steps} steps");
            if was_done && is_overtaken {
                break;
            }
            // All of it may be done in one step, if this thread is slow: once more then.
            steps = if was_done { 0 } else { steps + 1 };
        }
        assert!(is_overtaken, "the other one always came too late");
        world.collect().await;
    });
}

#[test]
fn many_completions_at_once_make_one_object() {
    run(async {
        let world = World::new(2).await;
        let (one, two) = (data(1, 5 << 20), data(2, 20_000));
        let whole = [&one[..], &two].concat();
        let name = world.create_upload("k").await;
        let parts = [world.put_part(&name, 1, &one).await, world.put_part(&name, 2, &two).await];
        let asked: Vec<_> = (0..8)
            .map(|_| {
                let (fs, name, parts) = (world.fs.clone(), name.clone(), parts.to_vec());
                tokio::spawn(async move {
                    fs.complete_upload(&root(), name, parts, Default::default()).await
                })
            })
            .collect();
        let mut etags = Vec::new();
        for one in asked {
            etags.push(one.await.unwrap().unwrap().put.etag);
        }
        let again = world.complete(&name, &parts).await.unwrap();
        assert!(etags.iter().all(|etag| *etag == again.put.etag));
        world.collect().await;
        assert!(world.get("k").await.unwrap() == whole);
    });
}

#[test]
fn a_completion_is_answered_again_while_its_object_stands() {
    run(async {
        let world = World::new(3).await;
        let (one, two) = (data(1, 5 << 20), data(2, 1000));
        let name = world.create_upload("k").await;
        let parts = [world.put_part(&name, 1, &one).await, world.put_part(&name, 2, &two).await];
        world.put_part(&name, 3, &data(3, 1000)).await;
        let done = world.complete(&name, &parts).await.unwrap();
        for _ in 0..2 {
            let again = world.complete(&name, &parts).await.unwrap();
            assert_eq!((again.put.etag, again.size), (done.put.etag.clone(), done.size));
            let other = [parts[1].clone()];
            for wrong in [&parts[..1], &other[..]] {
                let refused = world.complete(&name, wrong).await.unwrap_err();
                assert!(matches!(refused, Error::NotFound(_)), "{refused}");
            }
            let stranger = Caller::anonymous();
            let asked = world.fs.complete_upload(
                &stranger,
                name.clone(),
                parts.to_vec(),
                Default::default(),
            );
            assert!(matches!(asked.await, Err(Error::Denied(_))));
            // And once more when the garbage is gone.
            world.collect().await;
        }
        let abort = AbortUpload { name: name.clone() };
        assert!(matches!(world.fs.run(&root(), abort).await, Err(Error::NotFound(_))));
        world.put("k", &data(4, 10)).await.unwrap();
        let refused = world.complete(&name, &parts).await.unwrap_err();
        assert!(matches!(refused, Error::NotFound(_)), "{refused}");
    });
}

#[test]
fn an_upload_is_aborted_twice() {
    run(async {
        let world = World::new(4).await;
        let name = world.create_upload("k").await;
        world.put_part(&name, 1, &data(1, 100_000)).await;
        for _ in 0..2 {
            let abort = AbortUpload { name: name.clone() };
            world.fs.run(&root(), abort.clone()).await.unwrap();
            world.fs.run(&root(), abort).await.unwrap();
            world.collect().await;
            assert_eq!(world.blocks().await, 0);
        }
        let never = UploadName { upload: cairn_base::UploadId(1 << 40), ..name };
        let refused = world.fs.run(&root(), AbortUpload { name: never }).await;
        assert!(matches!(refused, Err(Error::NotFound(_))));
    });
}

#[test]
fn uploads_in_progress_do_not_keep_a_bucket() {
    run(async {
        let world = World::new(5).await;
        for at in 0..1100 {
            let name = world.create_upload(&format!("k{at}")).await;
            if at % 500 == 0 {
                world.put_part(&name, 1, &data(at, 100_000)).await;
            }
        }
        world.put("object", &data(1, 10)).await.unwrap();
        let refused = world.fs.delete_bucket(&root(), BUCKET).await;
        assert!(matches!(refused, Err(Error::NotEmpty(_))));
        let usage = world.fs.read(&root(), GetBucket { name: BUCKET.into() }).await.unwrap().1;
        assert_eq!(usage.uploads, 1100, "what is refused changes nothing");
        world.delete("object").await.unwrap();
        world.fs.delete_bucket(&root(), BUCKET).await.unwrap();
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

/// Somebody begins so many between any two operations of the deletion.
#[test]
fn a_bucket_in_which_uploads_are_begun_without_end_is_not_deleted() {
    run(async {
        let world = World::new(7).await;
        let caller = root();
        let mut deletion = Box::pin(world.fs.delete_bucket(&caller, BUCKET));
        let (mut deleted, mut begun) = (None, 0);
        while deleted.is_none() && begun < 12_000 {
            while uploads(&world).await <= 2000 {
                world.create_upload(&format!("k{begun}")).await;
                begun += 1;
            }
            deleted = step(&mut deletion).await;
        }
        let deleted = deleted.expect("it ends");
        assert!(matches!(&deleted, Err(Error::Conflict(why)) if why.contains("uploads")));
        assert!(uploads(&world).await > 0);
    });
}

async fn uploads(world: &World) -> u32 {
    world.fs.read(&root(), GetBucket { name: BUCKET.into() }).await.unwrap().1.uploads
}

/// An object comes in between, at each moment at which one can.
#[test]
fn a_bucket_that_is_not_deleted_keeps_its_uploads() {
    run(async {
        for steps in 0..4 {
            let world = World::new(6).await;
            for at in 0..3 {
                world.create_upload(&format!("k{at}")).await;
            }
            let caller = root();
            let mut deletion = Box::pin(world.fs.delete_bucket(&caller, BUCKET));
            let mut done = None;
            for _ in 0..steps {
                if done.is_none() {
                    done = step(&mut deletion).await;
                }
            }
            let put = world.put("object", &data(1, 10)).await;
            let deleted = match done {
                Some(done) => done,
                None => deletion.await,
            };
            match deleted {
                Ok(()) => assert!(matches!(put, Err(Error::NotFound(_))), "{put:?}"),
                Err(error) => {
                    assert!(matches!(error, Error::NotEmpty(_)), "{error}");
                    assert_eq!(uploads(&world).await, 3, "after {steps} steps");
                }
            }
        }
    });
}
