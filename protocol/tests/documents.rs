//! docs/protocol.md held against the table of verbs.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use shiftboss_protocol::verbs::{VERBS, Who};

/// The rows of the tables of a part of the document: what is in the first cell, and the last one.
fn rows<'a>(document: &'a str, heading: &str) -> BTreeMap<&'a str, &'a str> {
    let (_, part) = document.split_once(&format!("\n### {heading}\n")).unwrap();
    let part = part.split("\n### ").next().unwrap();
    let row = |line: &'a str| {
        let (request, rest) = line.strip_prefix("| `")?.split_once("` |")?;
        Some((request, rest.trim_end_matches(" |").rsplit(" | ").next()?))
    };
    part.lines().filter_map(row).collect()
}

/// Each verb has its row, with its arguments and the members of its answer; and each row is a verb.
#[test]
fn every_verb_is_documented() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let document = fs::read_to_string(file).unwrap();
    let mut of_workers = rows(&document, "Requests of protocol 2");
    let mut of_operators = rows(&document, "Operators");
    for verb in VERBS {
        let rows = if verb.who == Who::Operator { &mut of_operators } else { &mut of_workers };
        let synopsis = verb.synopsis();
        let answer = rows.remove(&*synopsis).unwrap_or_else(|| panic!("{synopsis}: no row"));
        let members: Vec<_> =
            verb.members.iter().map(|member| format!("\"{member}\":...")).collect();
        let object = format!("{{{}}}", members.join(","));
        assert!(members.is_empty() || answer.contains(&object), "{synopsis}: {object}: {answer}");
    }
    assert!(of_workers.is_empty() && of_operators.is_empty(), "{of_workers:?} {of_operators:?}");
}
