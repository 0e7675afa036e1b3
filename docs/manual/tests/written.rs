//! What `make man` writes: a page for each command, and completions that know them all.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use clap_complete::{Generator, Shell};
use shiftboss::cli::Cli;
use shiftboss_console::program::completions as script;
use shiftspool::program::cli::Cli as SpoolCli;

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
        for heading in ["SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\""] {
            assert!(page.contains(&format!(".SH {heading}\n")), "{name} {heading}: {page}");
        }
        assert!(!page.contains(".SH EXTRA"), "{name}: {page}");
    }
    assert!(!directory.path().join("man1/shiftboss-gone.1").exists());
}

/// A section of a page as it is written, unescaped; empty if there is none.
fn section(page: &str, heading: &str) -> String {
    let behind = page.split_once(&format!(".SH {heading}\n")).map_or("", |(_, behind)| behind);
    behind.split("\n.SH").next().unwrap().replace('\\', "")
}

/// The sections that a reader of man pages looks for say what the documents say.
#[test]
fn sections() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let page = |name: &str| fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
    let serve = page("shiftboss-serve.1");
    assert!(section(&serve, "ENVIRONMENT").contains("SHIFTBOSS_LEASE"), "{serve}");
    assert!(section(&serve, "FILES").contains("state.db-wal"), "{serve}");
    let codes = section(&serve, "\"EXIT STATUS\"");
    assert!(codes.contains("fB65fR\nthe database is damaged"), "{codes}");
    assert!(!codes.contains("the key is unknown"), "{codes}");
    let why = page("shiftboss-why.1");
    assert!(section(&why, "ENVIRONMENT").contains("SHIFTBOSS_TARGET"), "{why}");
    assert!(section(&why, "FILES").contains("/etc/shiftboss.toml"), "{why}");
    assert!(section(&why, "\"EXIT STATUS\"").contains("the key is unknown"), "{why}");
    for name in ["shiftspool-take.1", "shiftspool.1"] {
        let codes = section(&page(name), "\"EXIT STATUS\"");
        assert!(codes.contains("nothing was there to take"), "{codes}");
        assert!(codes.contains("no such entry") && !codes.contains("PostgreSQL"), "{codes}");
    }
    let watch = section(&page("shiftboss-on-change.1"), "\"EXIT STATUS\"");
    assert!(watch.contains("another one of NAME runs"), "{watch}");
    let first = page("shiftboss.1");
    assert!(section(&first, "\"EXIT STATUS\"").contains("fB128+NfR"), "{first}");
    assert!(section(&first, "ENVIRONMENT").contains("SHIFTBOSS_TARGET"), "{first}");
}

/// An example is shown as it is to be typed: no line of it is filled, cut or stretched.
#[test]
fn examples_are_kept_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    let path = directory.path().join("man1/shiftboss-serve.1");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.contains("\n.nh\n.ad l\n"), "{page}");
    let examples = section(&page, "EXAMPLES");
    assert!(examples.starts_with(".nf\n") && examples.ends_with(".fi"), "{examples}");
    let shown = Command::new("man").env("MANWIDTH", "60").arg("-l").arg(&path).output();
    let Ok(shown) = shown else { panic!("this test needs `man`: install man-db and groff-base") };
    let shown = String::from_utf8(shown.stdout).unwrap();
    let example = "shiftboss serve --lease 2h --socket-mode 0660 --socket-group workers \\\n";
    assert!(shown.contains(example), "{shown}");
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
        ("shiftboss-work.1", "fBshiftboss workfR [OPTIONS] -- <COMMAND>..."),
        ("shiftspool-put.1", "fBshiftspool putfR [OPTIONS] <DIR> <QUEUE> [FILE]"),
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
    let text =
        |file: String| fs::read_to_string(directory.path().join("completions").join(file)).unwrap();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        for program in [Cli::command(), SpoolCli::command()] {
            let text = text(shell.file_name(program.get_name()));
            assert_eq!(text.as_bytes(), script(program, shell), "the program prints the same");
        }
        let text = text(shell.file_name("shiftboss"));
        for name in commands() {
            assert!(text.contains(&name), "{shell} does not know {name}");
        }
    }
}

/// docs/commands.md, and the tables of docs/configuration.md, are what the definitions and the notes make today.
#[test]
fn the_reference_is_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let read = |directory: &Path, file| fs::read_to_string(directory.join(file)).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::copy(kept.join("configuration.md"), directory.path().join("configuration.md")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shiftboss-manual"));
    assert!(command.arg("--documents").arg(directory.path()).status().unwrap().success());
    for file in ["commands.md", "configuration.md"] {
        let is_kept = read(directory.path(), file) == read(&kept, file);
        assert!(is_kept, "docs/{file} is out of date: run `make docs`");
    }
    let keys = read(&kept, "configuration.md");
    for line in ["| `lease` | `--lease` | `SHIFTBOSS_LEASE` | `\"12h\"` |", "| `factor` | "] {
        assert!(keys.contains(line), "{line}");
    }
    let made = read(&kept, "commands.md");
    for name in commands() {
        assert!(made.contains(&format!("\n## `shiftboss {name}`\n")), "{name}");
    }
    assert!(made.contains("\n## `shiftspool run`\n") && made.contains("| `--durability "));
    for line in ["| `-n, --jobs JOBS` | `1` |", "| `--lease TIME` | `12h` |", "(`SHIFTBOSS_LEASE`)"]
    {
        assert!(made.contains(line), "{line}");
    }
}
