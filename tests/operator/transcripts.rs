//! Transcripts: what an operator types and is shown, command by command, in `transcripts/`: tables, messages, objects, exit codes.
//! What a line does to the queue is held elsewhere. `SNAPSHOTS=overwrite` writes the answers anew, to be read in `git diff`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use snapbox::{Assert, Data, Redactions};

use crate::common::{Client, Site, wait_until};

/// What differs from run to run.
const VARIES: [(&str, &str); 6] = [
    ("[VERSION]", r"shiftboss (?<redacted>\d+\.\d+\.\d+)"),
    ("[TIME]", r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?( ?UTC|Z)?"),
    ("[AGO]", r"just now|\d+years( \d+months?)?( ago)?|\b\d+(\.\d+)?s( ago)?|another 12h( 1s)?"),
    ("[PID]", r#"pid"?:? (?<redacted>\d+)"#),
    ("[ATTEMPT]", r"\b\d{16}\b"),
    (
        "[NUMBER]",
        r#""(started|finished|since|until|held_until|last_write|age_seconds|\w+_ms|\w+_seconds|last_started|schema_version)": (?<redacted>\d+)"#,
    ),
];

/// Runs the lines of a transcript that begin with `$`, each in a shell in the site's directory, and compares what is shown.
fn play(site: &Site, name: &str, varies: &[(&'static str, &str)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operator/transcripts");
    let path = path.join(name).with_extension("txt");
    let written = fs::read_to_string(&path).unwrap();
    let lines = written.lines().filter(|line| line.starts_with(['$', '#']));
    let seen: String = lines.map(|line| answered(site, line)).collect();
    let mut redactions = Redactions::new();
    for (place, found) in varies {
        redactions.insert(place, regex::Regex::new(found).unwrap()).unwrap();
    }
    redactions.insert("[SITE]", site.path("").display().to_string()).unwrap();
    Assert::new()
        .action_env("SNAPSHOTS")
        .normalize_paths(false)
        .redact_with(redactions)
        .eq(seen, Data::read_from(&path, None));
}

/// A line with its answer: an object over many lines, an exit code that is not 0 behind `?`.
fn answered(site: &Site, line: &str) -> String {
    let Some(command) = line.strip_prefix("$ ") else { return format!("\n{line}\n") };
    let program = Path::new(env!("CARGO_BIN_EXE_shiftboss"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let mut shell = site.program_of("sh");
    shell.args(["-c", &format!("exec 2>&1; {command}")]).env("PATH", path);
    let output = shell.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(object @ Value::Object(_)) => format!("{object:#}\n"),
        _ => text.lines().map(narrow).collect(),
    };
    let code = match output.status.code() {
        Some(0) => String::new(),
        code => format!("? {}\n", code.unwrap()),
    };
    format!("{line}\n{text}{code}")
}

/// A line of a table, whose columns are as wide as what differs.
fn narrow(line: &str) -> String {
    let (indent, line) = line.split_at(line.len() - line.trim_start().len());
    let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    format!("{indent}{}\n", cells.collect::<Vec<_>>().join("  "))
}

/// Lines that are none, and lines of earlier times; nothing is there.
#[test]
fn usage() {
    play(&Site::new(), "usage", &VARIES[..1]);
}

/// A queue whose keys ran in a known order, one of them in two lists, without a daemon and with one.
#[test]
fn views() {
    let site = crate::views::site();
    site.write("a.b.txt", "");
    let daemon = site.start();
    wait_until("a bad name is noted", || site.status()["rejected_files"][0].is_object());
    play(&site, "views", &VARIES);
    daemon.stop();
    play(&site, "views_of_a_file", &VARIES);
}

/// Each lever, and what it says of a key that it cannot be used with.
#[test]
fn levers() {
    let site = Site::new();
    let _daemon = site.start();
    let mut worker = Client::connect(&site);
    assert!(worker.ask("HELLO 2 builder 600").starts_with("HELLO 2 "));
    play(&site, "levers", &VARIES);
}
