//! What `make man` writes: a page for each command, and completions that know them all.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use shiftboss::cli::Cli;

fn write(directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shiftboss-manual"));
    assert!(command.arg(directory).status().unwrap().success());
}

fn commands() -> Vec<String> {
    let all = Cli::command();
    let names: Vec<String> = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    assert!(names.len() >= 12, "{names:?}");
    names
}

/// Each command has its page and is listed on the first one; a second run leaves nothing old.
#[test]
fn pages() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    fs::write(directory.path().join("man1/shiftboss-gone.1"), "").unwrap();
    write(directory.path());
    let page = |name: &str| fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
    let first = page("shiftboss.1");
    for name in commands() {
        let listed = format!("shiftboss-{name}(1)").replace('-', "\\-");
        assert!(first.contains(&listed), "{name}: {first}");
        let page = page(&format!("shiftboss-{name}.1"));
        assert!(page.contains(".SH SYNOPSIS") && page.contains("Example"), "{name}: {page}");
    }
    assert!(!directory.path().join("man1/shiftboss-gone.1").exists());
}

/// The synopsis is what a command's help says, with values, repetitions and `--`.
#[test]
fn synopses() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let synopsis = |name: &str| {
        let page = fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
        let (_, rest) = page.split_once(".SH SYNOPSIS\n").unwrap();
        rest.split_once(".SH").unwrap().0.replace('\\', "").trim_end().to_owned()
    };
    for (page, expected) in [
        ("shiftboss.1", "fBshiftbossfR <COMMAND>"),
        ("shiftboss-work.1", "fBshiftboss workfR [OPTIONS] [SOCKET] -- <COMMAND>..."),
        ("shiftboss-spool-put.1", "fBshiftboss spool putfR [OPTIONS] <DIR> <QUEUE> [FILE]"),
    ] {
        assert_eq!(synopsis(page), expected);
    }
    let serve = synopsis("shiftboss-serve.1");
    assert!(serve.starts_with("fBshiftboss servefR [OPTIONS]"), "{serve}");
    assert!(serve.contains("DATABASE") && !serve.contains("--lease"), "{serve}");
}

/// Each shell's completions know every command.
#[test]
fn completions() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    for file in ["shiftboss.bash", "_shiftboss", "shiftboss.fish"] {
        let text = fs::read_to_string(directory.path().join("completions").join(file)).unwrap();
        for name in commands() {
            assert!(text.contains(&name), "{file} does not know {name}");
        }
    }
}
