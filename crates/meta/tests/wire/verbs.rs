//! Every verb, and its reply.

use std::collections::BTreeSet;
use std::fs;

use cairn_meta::{WireVerb, wire};
use cairn_sim::golden::{compare, samples};

use crate::{codec, folder, forms};

#[derive(Default)]
struct Compared {
    wrong: Vec<String>,
}

impl wire::Visitor for Compared {
    fn verb<V: WireVerb>(&mut self) {
        let fields = samples::<V>("fields", codec(), &forms);
        let reply = samples::<V::Reply>("reply", codec(), &forms);
        let text = format!("{} {}\n\n{fields}\n{reply}", V::NUMBER, V::NAME);
        let path = folder("verbs").join(format!("{}.txt", V::NUMBER));
        self.wrong.extend(compare(&path, &text).err());
    }
}

/// A verb or a reply that has other fields gets a number that no verb had. Its former file stays.
#[test]
fn a_verb_with_other_fields_has_another_number() {
    let mut compared = Compared::default();
    wire::visit(&mut compared);
    let wrong = compared.wrong.join("\n");
    assert!(wrong.is_empty(), "give these verbs new numbers in crates/meta/src/wire.rs:\n{wrong}");
}

/// So that no number is used again.
#[test]
fn numbers_of_former_verbs_are_unknown() {
    let known: BTreeSet<u16> = wire::NUMBERS.iter().map(|(number, _)| *number).collect();
    for file in fs::read_dir(folder("verbs")).unwrap() {
        let path = file.unwrap().path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let number: u16 = number.unwrap_or_else(|| panic!("{}: no number", path.display()));
        let is_known = known.contains(&number);
        let received = wire::receive(number, &[]).err().map(|error| error.kind());
        assert_eq!(received == Some("not_implemented"), !is_known, "{number}");
    }
}

struct Received;

impl wire::Visitor for Received {
    fn verb<V: WireVerb>(&mut self) {
        let text = samples::<V>(V::NAME, codec(), &forms);
        let first = text.lines().nth(1).unwrap();
        let received = wire::receive(V::NUMBER, &cairn_sim::golden::unhex(first)).unwrap();
        assert_eq!(received.name(), V::NAME);
    }
}

#[test]
fn samples_are_received_as_their_verb() {
    wire::visit(&mut Received);
}
