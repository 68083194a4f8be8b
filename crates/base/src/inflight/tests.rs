use std::future::{pending, ready};
use std::pin::Pin;
use std::task::{Context, Waker};

use super::*;
use crate::{Scope, Stages};

type Tried = Scope<dyn Future<Output = ()> + Send>;

/// All tests share one table: each finds its own requests by the trace.
fn trace(id: u128) -> Trace {
    Trace { id, span: 1, parent: 0, sampled: false }
}

fn request(id: u128) -> Request {
    Request::new(Some(trace(id)), || About {
        door: "test",
        object: "/a".into(),
        ..About::default()
    })
}

fn scope(id: u128, future: impl Future<Output = ()> + Send + 'static) -> Tried {
    Scope::of(Stages::start(trace(id)), request(id), Box::pin(future))
}

fn poll_once(scope: &mut Tried) -> Poll<()> {
    Pin::new(scope).poll(&mut Context::from_waker(Waker::noop()))
}

fn find(id: u128) -> Option<RequestSnapshot> {
    seen().into_iter().find(|seen| seen.trace.is_some_and(|trace| trace.id == id))
}

/// Waits once.
async fn once() {
    let mut waited = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn awaited(text: &str) -> WaitTarget {
    WaitTarget::Text(text.to_owned())
}

#[test]
fn it_is_listed_from_when_it_first_waits_until_it_is_over() {
    let mut scope = scope(101, async {
        stage::time(Stage::Meta, once()).await;
        stage::time(Stage::Peer, waiting(|| awaited("node 3"), once())).await;
        once().await;
    });
    assert_eq!(find(101), None);
    assert!(poll_once(&mut scope).is_pending());
    let first = find(101).expect("it waits");
    assert_eq!((first.stage, first.waits.len()), (Some(Stage::Meta), 0));
    assert_eq!((first.about.door, first.about.object.as_str()), ("test", "/a"));
    assert!(first.stage_age <= first.age);
    assert!(poll_once(&mut scope).is_pending());
    let second = find(101).expect("it waits");
    assert_eq!((second.number, second.stage), (first.number, Some(Stage::Peer)));
    assert_eq!(second.waits[0].0, "node 3");
    assert!(poll_once(&mut scope).is_pending());
    let third = find(101).expect("it waits");
    assert_eq!((third.stage, third.waits.len()), (None, 0));
    assert!(poll_once(&mut scope).is_ready());
    drop(scope);
    assert_eq!(find(101), None);
}

#[test]
fn what_is_answered_at_once_is_never_listed() {
    let own = request(102);
    let mut scope = Scope::of(
        Stages::start(trace(102)),
        own.clone(),
        Box::pin(async { waiting(|| panic!("it does not wait"), ready(())).await })
            as Pin<Box<dyn Future<Output = ()> + Send>>,
    );
    assert!(poll_once(&mut scope).is_ready());
    assert_eq!(own.0.number.load(Ordering::Relaxed), 0);
    assert_eq!(find(102), None);
}

#[test]
fn what_is_dropped_while_it_waits_is_over() {
    let mut scope = scope(103, waiting(|| awaited("a lock"), pending()));
    assert!(poll_once(&mut scope).is_pending());
    assert_eq!(find(103).expect("it waits").waits[0].0, "a lock");
    drop(scope);
    assert_eq!(find(103), None);
}

#[test]
fn a_part_of_a_request_says_what_the_request_waits_for() {
    let mut part: Option<Tried> = None;
    let mut whole = request(104);
    let mut stages = Stages::start(trace(104));
    let mut context = Context::from_waker(Waker::noop());
    let polled: Poll<()> = poll(&mut stages, &mut Some(whole.clone()), || {
        let _writing = stage::enter(Stage::Write);
        let peer = waiting(|| awaited("node 5"), pending());
        let future: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(stage::time(Stage::Peer, peer));
        part = Some(Scope::new(stage::of_task(), future));
        Poll::Pending
    });
    assert!(polled.is_pending());
    // Elsewhere, later.
    let mut part = part.expect("it was made");
    assert!(Pin::new(&mut part).poll(&mut context).is_pending());
    let seen = find(104).expect("it waits");
    assert_eq!((seen.stage, &seen.waits[0].0[..]), (Some(Stage::Peer), "node 5"));
    drop(part);
    assert!(find(104).expect("the whole of it is not over").waits.is_empty());
    whole = request(105);
    assert_eq!((find(104), find(105)), (None, None));
    drop(whole);
}

/// A reply is sent in pieces: each is read, and then the client takes it.
#[test]
fn what_is_ready_is_in_the_stage_in_which_it_rests() {
    let mut stages = Stages::start(trace(108));
    stages.rest_in(Stage::Send);
    let mut own = Some(request(108));
    let guard = std::cell::Cell::new(None);
    let first = poll(&mut stages, &mut own, || {
        guard.set(Some(stage::enter(Stage::Read)));
        Poll::<()>::Pending
    });
    assert!(first.is_pending());
    assert_eq!(find(108).expect("it waits").stage, Some(Stage::Read));
    let piece = poll(&mut stages, &mut own, || {
        guard.take();
        Poll::Ready(())
    });
    assert!(piece.is_ready());
    assert_eq!(find(108).expect("it is not over").stage, Some(Stage::Send));
}

#[test]
fn what_becomes_known_on_the_way_is_said() {
    let mut scope = scope(106, async {
        by(UserId(0));
        is("PutObject");
        is("another");
        once().await;
    });
    by(UserId(9));
    is("nothing");
    assert!(poll_once(&mut scope).is_pending());
    let about = find(106).expect("it waits").about;
    assert_eq!((about.user, &about.operation[..]), (Some(UserId(0)), "PutObject"));
}

#[test]
fn what_is_not_timed_is_in_flight_as_well() {
    let asked =
        waiting(|| WaitTarget::Asked(Arc::new(|| "the state as of now".into())), pending::<()>());
    let about = || About { object: "/untimed".into(), ..About::default() };
    let mut work = Box::pin(within(Request::new(None, about), asked));
    assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let found = seen().into_iter().find(|seen| seen.about.object == "/untimed").expect("it waits");
    assert_eq!((found.trace, found.stage), (None, None));
    assert_eq!(found.waits[0].0, "the state as of now");
    drop(work);
    assert!(seen().iter().all(|seen| seen.about.object != "/untimed"));
}

#[test]
fn a_panic_leaves_no_request_behind() {
    let mut own = Some(request(107));
    let panics = std::panic::AssertUnwindSafe(|| during(&mut own, || panic!("planted")));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(own.is_some() && current().is_none());
}

#[test]
fn stages_and_times_are_packed_and_unpacked() {
    let times = [0, 1, (1 << 56) - 1].map(Duration::from_nanos);
    for stage in Stage::ALL.into_iter().map(Some).chain([None]) {
        for time in times {
            assert_eq!(unpack(pack(stage, time)), (stage, time));
        }
    }
    assert_eq!(unpack(pack(Some(Stage::Sync), Duration::MAX)).0, Some(Stage::Sync));
    assert_eq!(unpack(u64::MAX).0, None);
}

#[test]
fn what_is_waited_for_has_a_name() {
    let node =
        |address: &str| WaitTarget::Node("chunkserver", NodeId(10), address.into()).to_string();
    assert_eq!(node("a:1"), "chunkserver node 10 at a:1");
    assert_eq!(node(""), "chunkserver node 10");
    assert_eq!(WaitTarget::Named("server", "http://b".into()).to_string(), "server http://b");
}
