//! The documents held against the source: each test that docs/reliability.md names exists.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Adds the names of all functions in the sources below `directory`.
fn collect(directory: &Path, functions: &mut HashSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, functions);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let names = text.lines().filter_map(|line| line.split_once("fn ")?.1.split('(').next());
            functions.extend(names.map(str::to_owned));
        }
    }
}

/// What stands between backquotes and has `::` in it.
fn named(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).collect()
}

#[test]
fn the_tests_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut functions = HashSet::new();
    for directory in ["src", "actors", "spool/src", "tests", "benches/src", "manual"] {
        collect(&root.join(directory), &mut functions);
    }
    let text = fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    let tests = named(&text);
    assert!(tests.len() > 60, "{} tests are named", tests.len());
    let is_missing = |test: &&&str| !functions.contains(test.rsplit("::").next().unwrap());
    let missing: Vec<_> = tests.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "there is no such test: {missing:#?}");
}
