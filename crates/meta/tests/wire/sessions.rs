//! Messages of sessions, and their answers.

use cairn_meta::session::{
    Acknowledge, Attach, Attached, Change, Delegate, Delegated, Detach, Execute, Executed, Flush,
    GiveBack, Method, Progress, Read, ReadReply, Recall, Renew, Renewed, Replayed, Reply, Run,
    RunPosted,
};
use cairn_sim::golden::{compare, samples};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{codec, folder, forms};

fn check<M, A>(number: u16) -> Option<String>
where
    M: Serialize + DeserializeOwned,
    A: Serialize + DeserializeOwned,
{
    let message = samples::<M>("message", codec(), &forms);
    let answer = samples::<A>("answer", codec(), &forms);
    let text = format!("{number}\n\n{message}\n{answer}");
    compare(&folder("sessions").join(format!("{number}.txt")), &text).err()
}

fn check_method(method: Method) -> Option<String> {
    let number = method as u16;
    match method {
        Method::Attach | Method::AttachToReplay => check::<Attach, Reply<Attached>>(number),
        Method::Renew => check::<Renew, Reply<Renewed>>(number),
        Method::Read => check::<Read, Reply<ReadReply>>(number),
        Method::Run => check::<Run, Reply<bytes::Bytes>>(number),
        Method::Acknowledge => check::<Acknowledge, Reply<()>>(number),
        Method::Detach => check::<Detach, Reply<()>>(number),
        Method::Change => check::<Change, Reply<ReadReply>>(number),
        Method::Execute => check::<Execute, Reply<Executed>>(number),
        Method::Flush => check::<Flush, Reply<Progress>>(number),
        Method::Replayed => check::<Replayed, Reply<()>>(number),
        Method::Delegate => check::<Delegate, Reply<Delegated>>(number),
        Method::RunPosted => {
            check::<RunPosted, Reply<Vec<Result<Executed, cairn_base::Error>>>>(number)
        }
        Method::GiveBack => check::<GiveBack, Reply<()>>(number),
    }
}

/// A message that has other fields gets a method of its own.
#[test]
fn a_message_with_other_fields_has_another_method() {
    let methods = (0..=u16::MAX).filter_map(|number| Method::from_number(number).ok());
    let mut wrong: Vec<String> = methods.filter_map(check_method).collect();
    // From the master: `cairn_cluster::control::Method::Recall`.
    wrong.extend(check::<Recall, ()>(6));
    let wrong = wrong.join("\n");
    assert!(wrong.is_empty(), "give these messages new methods:\n{wrong}");
}
