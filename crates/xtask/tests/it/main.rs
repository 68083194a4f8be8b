use std::path::Path;

use xtask::floors::{check_module, floors};
use xtask::tidy::{check, check_manifest, check_text};

#[test]
fn the_repository_is_tidy() {
    let findings = check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn what_is_untidy_is_found() {
    let manifest = "[dependencies]\ncairn-doors.workspace = true\nhyper = \"1\"";
    assert_eq!(check_manifest("fs", manifest).len(), 2);
    let long = format!("fn long() {{\n{}}}\n", "    work();\n".repeat(70));
    assert_eq!(check_text("a.rs", &long), ["a.rs:1: `long` has 72 lines"]);
    let short =
        format!("    pub async fn short(\n    ) {{\n{}    }}\n", "        work();\n".repeat(67));
    assert!(check_text("a.rs", &short).is_empty());
    assert_eq!(check_text("a.rs", &"x".repeat(101)).len(), 1);
}

#[test]
fn a_module_that_uses_one_beside_or_below_it_is_found() {
    let floors = floors("//! A crate.\n\nmod a;\nmod b;\n\npub mod c;\n\nuse std::fs;\n");
    let found = |module, text| check_module(&floors, module, text);
    assert!(found("c", "use crate::a::A;\nuse crate::{a, b::B};\nuse crate::Root;").is_empty());
    assert_eq!(found("a", "use crate::b::B;").len(), 1);
    assert_eq!(found("b", "use crate::{Root, c};").len(), 1);
    assert_eq!(found("d", "").len(), 1);
    assert!(found("a", "use crate::a::A;").is_empty(), "in its tests");
}
