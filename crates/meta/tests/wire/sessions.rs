//! Messages of sessions, and their answers.

use cairn_meta::session::{
    Acknowledge, Attach, AttachReply, Bind, Bound, Change, Delegate, DelegateReply, Detach,
    DumpRows, DumpedRows, Execute, ExecuteReply, Flush, GiveBack, Progress, ReadReply, ReadRequest,
    Recall, Renew, RenewReply, ReplayEnd, Reply, Run, RunPosted, SessionMethod, Succeed,
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

fn check_method(method: SessionMethod) -> Option<String> {
    let number = method as u16;
    match method {
        SessionMethod::Attach | SessionMethod::AttachToReplay | SessionMethod::AttachHolding => {
            check::<Attach, Reply<AttachReply>>(number)
        }
        SessionMethod::Renew => check::<Renew, Reply<RenewReply>>(number),
        SessionMethod::Read => check::<ReadRequest, Reply<ReadReply>>(number),
        SessionMethod::Run => check::<Run, Reply<bytes::Bytes>>(number),
        SessionMethod::Acknowledge => check::<Acknowledge, Reply<()>>(number),
        SessionMethod::Detach => check::<Detach, Reply<()>>(number),
        SessionMethod::Change => check::<Change, Reply<ReadReply>>(number),
        SessionMethod::Execute => check::<Execute, Reply<ExecuteReply>>(number),
        SessionMethod::Flush => check::<Flush, Reply<Progress>>(number),
        SessionMethod::Replayed => check::<ReplayEnd, Reply<()>>(number),
        SessionMethod::Delegate => check::<Delegate, Reply<DelegateReply>>(number),
        SessionMethod::RunPosted => {
            check::<RunPosted, Reply<Vec<Result<ExecuteReply, cairn_base::Error>>>>(number)
        }
        SessionMethod::GiveBack => check::<GiveBack, Reply<()>>(number),
        SessionMethod::DumpRows => check::<DumpRows, Reply<DumpedRows>>(number),
        SessionMethod::Bind => check::<Bind, Reply<Bound>>(number),
        SessionMethod::Succeed => check::<Succeed, Reply<()>>(number),
    }
}

/// A message that has other fields gets a method of its own.
#[test]
fn a_message_with_other_fields_has_another_method() {
    let methods = (0..=u16::MAX).filter_map(|number| SessionMethod::from_number(number).ok());
    let mut wrong: Vec<String> = methods.filter_map(check_method).collect();
    // From the master: `cairn_cluster::control::SessionMethod::Recall`.
    wrong.extend(check::<Recall, ()>(6));
    let wrong = wrong.join("\n");
    assert!(wrong.is_empty(), "give these messages new methods:\n{wrong}");
}
