//! `golden/` has each message between nodes, and its answer, as text: one file for each method, and
//! for each that was one. New messages are written by
//! `CAIRN_GOLDEN=write cargo test -p cairn-cluster --test it messages_stay`. Messages of sessions
//! are those of `cairn-meta`.

use std::path::PathBuf;

use bytes::Bytes;
use cairn_base::GroupId;
use cairn_blocks::BlockPlace;
use cairn_cluster::control::messages::{
    Beat, Beaten, CaughtUp, ControlMethod, DiskFault, Extra, Secrets, Vouched, VouchedFrom,
};
use cairn_cluster::members::{DamageReport, EnterReply, MemberReport, RenumberReply, StallReport};
use cairn_cluster::mount::messages::{GET, Get, LOCATE, Locate, NEAR, PUT, Put, SPACE, Space};
use cairn_meta::session::Recall;
use cairn_meta::wire;
use cairn_sim::golden::{Codec, compare, samples};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn codec<T: Serialize + DeserializeOwned>() -> Codec<T> {
    Codec {
        encode: |value| wire::encode(value).unwrap().to_vec(),
        decode: |bytes| wire::decode(bytes).unwrap(),
    }
}

fn check<M, A>(number: u16) -> Option<String>
where
    M: Serialize + DeserializeOwned,
    A: Serialize + DeserializeOwned,
{
    let message = samples::<M>("message", codec(), &|_, _| None);
    let answer = samples::<A>("answer", codec(), &|_, _| None);
    let text = format!("{number}\n\n{message}\n{answer}");
    let folder = [env!("CARGO_MANIFEST_DIR"), "tests/it/golden"].iter().collect::<PathBuf>();
    compare(&folder.join(format!("{number}.txt")), &text).err()
}

/// Bytes as they are (a map, a certificate) are no fields.
fn check_method(method: ControlMethod) -> Option<String> {
    let number = method as u16;
    match method {
        ControlMethod::Recall => check::<Recall, ()>(number),
        ControlMethod::Serves
        | ControlMethod::Map
        | ControlMethod::Certify
        | ControlMethod::Member => check::<(), ()>(number),
        ControlMethod::Beat => check::<Beat, Beaten>(number),
        ControlMethod::Secrets => check::<(), Secrets>(number),
        ControlMethod::CaughtUp => check::<CaughtUp, ()>(number),
        ControlMethod::Extra => check::<Extra, ()>(number),
        ControlMethod::Vouched => check::<Vouched, ()>(number),
        ControlMethod::VouchedFrom => check::<VouchedFrom, ()>(number),
        ControlMethod::MemberReport => check::<(), MemberReport>(number),
        ControlMethod::MemberStalls => check::<(), Vec<StallReport>>(number),
        ControlMethod::MemberDamage => check::<(), Vec<DamageReport>>(number),
        ControlMethod::DiskFault => check::<DiskFault, ()>(number),
        ControlMethod::Enter => check::<(), EnterReply>(number),
        ControlMethod::Renumber => check::<(), RenumberReply>(number),
    }
}

/// A message that has other fields gets a method of its own.
#[test]
fn a_message_with_other_fields_has_another_method() {
    let methods = (0..=u16::MAX).filter_map(|number| ControlMethod::from_number(number).ok());
    let mut wrong: Vec<String> = methods.filter_map(check_method).collect();
    wrong.extend(check::<Put, GroupId>(PUT));
    wrong.extend(check::<Get, Bytes>(GET));
    wrong.extend(check::<(), Space>(SPACE));
    wrong.extend(check::<(), Option<String>>(NEAR));
    wrong.extend(check::<Locate, Option<BlockPlace>>(LOCATE));
    let wrong = wrong.join("\n");
    assert!(wrong.is_empty(), "give these messages new methods:\n{wrong}");
}
