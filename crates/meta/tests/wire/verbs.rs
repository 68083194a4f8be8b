//! Every verb, and its reply.

use std::collections::BTreeSet;
use std::fs;

use cairn_meta::{WireVerb, wire};
use cairn_sim::golden::{compare, samples, unhex};

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

#[derive(Default)]
struct Known(BTreeSet<u16>);

impl wire::Visitor for Known {
    fn verb<V: WireVerb>(&mut self) {
        self.0.insert(V::NUMBER);
    }
}

/// The files of former numbers are messages of versions before. They are refused as what they are,
/// and no number is used again.
#[test]
fn former_verbs_are_unknown() {
    let mut known = Known::default();
    wire::visit(&mut known);
    let mut former = 0;
    for file in fs::read_dir(folder("verbs")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let number = text.split(' ').next().and_then(|number| number.parse().ok());
        let number: u16 = number.unwrap_or_else(|| panic!("{}: no number", path.display()));
        assert_eq!(path.file_stem().unwrap().to_str(), Some(number.to_string().as_str()));
        if known.0.contains(&number) {
            continue;
        }
        former += 1;
        let lines: Vec<&str> = text.lines().collect();
        let recorded = lines.windows(2).filter(|pair| pair[0].starts_with("fields "));
        for bytes in recorded.map(|pair| unhex(pair[1])) {
            let error = wire::receive(number, &bytes).err().unwrap();
            assert_eq!(error.kind(), "not_implemented", "{number}");
            assert!(error.to_string().contains(&format!("operation {number}")), "{error}");
        }
    }
    assert!(former >= 44, "the files of former numbers stay");
}

struct Received;

impl wire::Visitor for Received {
    fn verb<V: WireVerb>(&mut self) {
        let text = samples::<V>(V::NAME, codec(), &forms);
        let first = text.lines().nth(1).unwrap();
        let received = wire::receive(V::NUMBER, &unhex(first)).unwrap();
        assert_eq!(received.name(), V::NAME);
    }
}

#[test]
fn samples_are_received_as_their_verb() {
    wire::visit(&mut Received);
}
