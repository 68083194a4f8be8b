#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]

mod dist;

use std::path::Path;

use xtask::arrows::Sources;
use xtask::dependencies::unused;
use xtask::errors::in_text;
use xtask::floors::{check_module, check_sources, floors};
use xtask::glossary::{Types, check_glossary, check_types, defined};
use xtask::pictures::{BYTES_MAX, check as check_pictures, shown};
use xtask::supply::{check_metadata, is_allowed};
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
fn pictures_that_are_missing_or_shown_by_no_document_are_found() {
    let text = "A ![one](a.png) and\n![two](b/c.png \"title\"), [a link](d.png) ![bad]";
    assert_eq!(shown(text), ["a.png", "b/c.png"]);
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    let _ = std::fs::remove_dir_all(&root);
    let write = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("README.md", b"![there](docs/images/a.png) ![away](https://host.example/b.png)");
    write("docs/a.md", b"![there](images/a.png) ![missing](images/c.png)");
    write("docs/images/a.png", b"a");
    assert_eq!(check_pictures(&root), ["docs/a.md: there is no picture images/c.png"]);
    write("docs/images/c.png", &vec![0; BYTES_MAX as usize]);
    write("docs/images/d.png", b"");
    let findings = check_pictures(&root).join("\n");
    assert!(findings.starts_with("docs/images/d.png: no document shows it\n"), "{findings}");
    assert!(findings.ends_with("at most 614400"), "{findings}");
}

#[test]
fn licences_and_sources_that_may_not_be_shipped_are_found() {
    let registry = "registry+https://HOST/rust-lang/crates.io-index";
    let package = |license: &str, source: &str| {
        format!(r#"{{"name": "a", "version": "1.0.0", "license": {license}, "source": {source}}}"#)
    };
    let check = |license: &str, source: &str| {
        let metadata = format!(r#"{{"packages": [{}]}}"#, package(license, source));
        check_metadata("Cargo.toml", &metadata, &["MIT".to_owned()])
    };
    let quoted = |text: &str| format!("{text:?}");
    assert!(check("\"MIT\"", &quoted(registry)).is_empty());
    assert!(check("\"MIT\"", "null").is_empty(), "a crate of this repository");
    let refused = |license: &str, source: &str, why: &str| {
        assert_eq!(check(license, source), [format!("Cargo.toml: a 1.0.0: {why}")]);
    };
    refused("\"GPL-3.0\"", "null", "`GPL-3.0` is not allowed");
    refused("null", "null", "says no licence");
    for source in ["git+https://HOST/a?rev=1#2", "registry+https://HOST/other-index"] {
        refused("\"MIT\"", &quoted(source), &format!("comes from {source}"));
    }
    assert_eq!(check_metadata("Cargo.toml", r#"{"packages": []}"#, &[]).len(), 1);
    assert_eq!(check_metadata("Cargo.toml", "", &[]).len(), 1);
}

#[test]
fn an_expression_of_licences_is_read() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
    for expression in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-2.0 OR MIT",
        "MIT AND ISC",
        "(GPL-2.0 OR MIT) AND ISC",
        "GPL-2.0 AND BSD-3-Clause OR MIT",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in [
        "",
        "GPL-2.0",
        "MIT AND GPL-2.0",
        "GPL-2.0 OR Apache-2.0",
        "(MIT OR ISC) AND GPL-2.0",
        "MIT AND (GPL-2.0 OR BSD-3-Clause)",
        "Apache-2.0",
        "MIT WITH Font-exception-2.0",
        "MIT ISC",
        "MIT OR",
        "(MIT",
        "MIT)",
        "mit",
    ] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
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

#[test]
fn a_circle_of_files_is_found_and_what_is_handed_on_is_no_use() {
    let floors = floors("mod a;\n\nmod b;\n");
    let found = |texts: &[(&str, &str)]| {
        let name = |path: &str| path.split('/').map(str::to_owned).collect();
        let sources: Sources =
            texts.iter().map(|(path, text)| (name(path), (*text).to_owned())).collect();
        check_sources(&floors, &sources)
    };
    let (one, two) = (("a/one", "pub struct One;"), ("a/two", "use super::One;\nstruct Two;"));
    let head = ("a", "mod one;\nmod two;\npub use one::One;\npub use two::Two;");
    assert!(found(&[head, one, two]).is_empty());
    let back = ("a/one", "pub struct One;\nfn f() { crate::a::Two::new(); }");
    assert_eq!(found(&[head, back, two]), ["a circle: a/one, a/two"]);
    let uses = ("a", "mod one;\nmod two;\nuse two::Two;\npub use one::One;\nstruct Head;");
    let of_head = ("a/two", "use super::{One, Head};\nstruct Two;");
    assert_eq!(found(&[uses, one, of_head]), ["a circle: a, a/two"]);
    let in_tests = "pub struct One; // crate::a::Two\n#[cfg(test)]\nmod tests { use crate::b; }";
    assert!(found(&[head, ("a/one", in_tests), two, ("b", "use crate::a::One;")]).is_empty());
    let up = found(&[head, one, ("a/two", "use crate::b::*;\nuse crate::{b::B as C};"), ("b", "")]);
    assert_eq!(up, ["a/two uses b, which does not stand above it"]);
}

#[test]
fn a_circle_through_the_root_of_a_crate_is_found() {
    let name =
        |path: &str| path.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let texts = [
        ("", "mod a;\nuse a::A;\npub struct Root;\nfn f(_: A) {}"),
        ("a", "use crate::Root;\npub struct A;"),
    ];
    let sources: Sources =
        texts.iter().map(|(path, text)| (name(path), (*text).to_owned())).collect();
    assert_eq!(check_sources(&floors(texts[0].1), &sources), ["a circle: the root, a"]);
}

#[test]
fn a_dependency_that_no_path_begins_with_is_found() {
    let packages = ["http-body", "md-5", "serde", "time"].map(str::to_owned);
    let text = "use http_body::Body;\nuse md5::{Digest, Md5};\n// serde::Serialize\nfn time() {}";
    assert_eq!(unused(&packages, text), ["serde", "time"]);
    let in_tests = "#[cfg(test)]\nmod tests { use serde::Serialize; use time; }";
    assert_eq!(unused(&packages, in_tests), ["http-body", "md-5"]);
}

#[test]
fn texts_of_errors_are_found_and_other_texts_are_not() {
    let source = r#"
        use std::fmt; // Error::Invalid("in a comment")
        fn open(name: &str) -> Result<File> {
            tracing::warn!(name, "a line of the log");
            let bad = |why: &str| Error::Invalid(format!("{name}: {why}"));
            let found = "a text of its own";
            if name.is_empty() {
                return Err(bad("it is \
                    empty"));
            }
            find(name).ok_or_else(|| Error::NotFound(format!("file {name}")))?;
            assert!(found.len() > 1, "a text of an assertion");
            Err(Error::Corrupt { what: "its head".into(), got: 3 })
        }
        impl fmt::Display for ReadError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "cannot read {}", self.0)
            }
        }
        impl fmt::Display for Name { fn fmt(&self) { write!(f, "name {}", self.0) } }
        fn late() -> io::Error { io::Error::other("too late") }
        #[cfg(test)]
        mod tests { fn f() { Error::Invalid("in a test") } }
    "#;
    let found: Vec<String> = in_text(source).iter().map(ToString::to_string).collect();
    let expected = [
        "5: [Error::Invalid] {name}: {why}",
        "8: [bad] it is empty",
        "11: [Error::NotFound] file {name}",
        "13: [Error::Corrupt] its head",
        "17: cannot read {}",
        "21: [Error::other] too late",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_word_without_a_definition_and_a_definition_without_a_use_are_found() {
    let glossary =
        "# Glossary\n\n- **lease, grant** (of a row): until it is recalled.\n- **cold**: x";
    let found = |texts: &str, special: &[&str]| check_glossary(glossary, texts, special);
    assert!(found("A Lease is a grant. It is cold.", &["lease", "grant"]).is_empty());
    let undefined = "docs/glossary.md does not define `recall`";
    assert_eq!(found("leases, grants, cold", &["grant", "recall"]), [undefined]);
    let unused = "docs/glossary.md defines `cold`, which nothing uses";
    assert_eq!(found("leases and grants", &[]), [unused]);
}

#[test]
fn a_type_that_is_several_things_is_listed_in_the_glossary() {
    let several = "## Names that the code uses for several things";
    let glossary = |listed: &str| format!("- **lease**: until.\n\n{several}\n\n{listed}");
    let types = |all: &[(&str, &str)]| {
        let mut types = Types::new();
        for (name, file) in all {
            types.entry((*name).to_owned()).or_default().insert((*file).to_owned());
        }
        types
    };
    let two = types(&[("Lease", "crates/meta/src/a.rs"), ("Lease", "crates/meta/src/b.rs")]);
    assert!(check_types(&glossary("- `meta::a::Lease`: one of two"), &two).is_empty());
    assert_eq!(check_types(&glossary(""), &two).len(), 1);
    let beside = types(&[("Lease", "crates/meta/src/a.rs"), ("Lease", "crates/bench/src/b.rs")]);
    assert!(check_types(&glossary(""), &beside).is_empty());
    let gone = "docs/glossary.md lists `Gone`, and there is no such type";
    assert_eq!(check_types(&glossary("`meta::Gone`, not `gone`"), &types(&[])), [gone]);
    let bare = types(&[("State", "crates/fs/src/a.rs")]);
    assert_eq!(check_types(&glossary(""), &bare), ["crates/fs/src/a.rs: `State` of what?"]);
    let source =
        "pub struct One<T>(T);\nenum Two {}\nimpl A for B { type Out = u8; }\n// struct Three";
    assert_eq!(defined(source), ["One", "Two"]);
}
