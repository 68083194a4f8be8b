//! A verb that has not asked for what it declares, or that asks for more, has neither a reply nor
//! an effect, whoever runs it.

use bytes::Bytes;
use cairn_auth::{Action, ActionSet, Caller, Resource};
use cairn_base::{Error, UserId};
use cairn_meta::{Context, Needs, Stop, Verb, VerbNeeds, View};

use crate::setup::Setup;
use crate::verbs::{Get, key, row};

const KEY: &str = "written";

fn write(view: &mut View<'_>) {
    view.put(key(KEY), row(1));
}

macro_rules! writes {
    ($verb:ident, $name:literal, $needs:expr, $asks:expr) => {
        struct $verb;

        impl VerbNeeds for $verb {
            const NEEDS: Needs = $needs;
        }

        impl Verb for $verb {
            type Reply = Bytes;
            const NAME: &'static str = $name;

            fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Bytes, Stop> {
                let asks: &[Action] = $asks;
                for action in asks {
                    context.authorize(view, *action, Resource::Store)?;
                }
                let found = view.get(&key(KEY))?;
                if found.is_none() {
                    write(view);
                }
                Ok(found.unwrap_or_default())
            }
        }
    };
}

writes!(Forgets, "forgets", Needs::All(ActionSet::of(&[Action::PutObject])), &[]);
writes!(
    Half,
    "half",
    Needs::All(ActionSet::of(&[Action::PutObject, Action::GetObject])),
    &[Action::GetObject]
);
writes!(More, "more", Needs::Nothing("a test"), &[Action::PutObject]);
writes!(Asks, "asks", Needs::All(ActionSet::of(&[Action::PutObject])), &[Action::PutObject]);
writes!(ForRoot, "for_root", Needs::Store(Action::Operate), &[]);

async fn refused<V: Verb<Reply = Bytes>>(setup: &Setup, caller: &Caller, verb: V) {
    let ran = setup.master.run(caller, verb).await;
    assert!(matches!(ran, Err(Error::Denied(_))), "{}: {ran:?}", V::NAME);
    let found = setup.read(Get(vec![KEY])).await.expect("a read");
    assert_eq!(found.0, [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn even_by_the_store_itself() {
    let setup = Setup::new(Default::default());
    for caller in [Caller::system(), Caller::verified(UserId::ROOT)] {
        refused(&setup, &caller, Forgets).await;
        refused(&setup, &caller, Half).await;
        refused(&setup, &caller, More).await;
    }
    refused(&setup, &Caller::verified(UserId(7)), Asks).await;
    refused(&setup, &Caller::verified(UserId(7)), ForRoot).await;
    refused(&setup, &Caller::anonymous(), ForRoot).await;
    setup.master.run(&Caller::system(), Asks).await.unwrap();
    // Reads are no other way in.
    let read = setup.master.read(&Caller::system(), Forgets).await;
    assert!(matches!(read, Err(Error::Denied(_))), "{read:?}");
    let read = setup.master.read_now(&Caller::system(), &Forgets);
    assert!(matches!(read, None | Some(Err(Error::Denied(_)))), "{read:?}");
    assert_eq!(setup.master.read(&Caller::system(), Asks).await.unwrap(), row(1));
    let read = setup.master.read(&Caller::verified(UserId(7)), ForRoot).await;
    assert!(matches!(read, Err(Error::Denied(_))), "{read:?}");
    setup.master.stop();
}
