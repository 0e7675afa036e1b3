//! The documents held against the source and the program: each test that docs/reliability.md names exists, links
//! between documents hold, and what the README and the way back from shiftboss show works as it is written.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use clap::error::ErrorKind;
use rustix::process::{Pid, Signal, kill_process};
use shiftboss::cli::Cli;

use crate::common::{Site, wait_until};

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
    for directory in [
        "src",
        "actors",
        "console/src",
        "runner/src",
        "protocol",
        "queue",
        "relay/src",
        "stores",
        "spool",
        "tests",
        "benches/src",
        "docs/manual",
    ] {
        collect(&root.join(directory), &mut functions);
    }
    let text = fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    let tests = named(&text);
    assert!(tests.len() > 60, "{} tests are named", tests.len());
    let is_missing = |test: &&&str| !functions.contains(test.rsplit("::").next().unwrap());
    let missing: Vec<_> = tests.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "there is no such test: {missing:#?}");
}

/// The repository's documents.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_directory = |directory: PathBuf| {
        let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"))
    };
    [".", "docs", "docs/spec", "docs/decisions"]
        .iter()
        .flat_map(|name| in_directory(root.join(name)))
        .collect()
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("    "))
}

/// Where a document's links go, and its pictures are: what stands between `](` and `)`, or behind `src=` and `srcset=`.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let pictures =
        text.split(" src").skip(1).filter_map(|rest| rest.split_once("=\"")?.1.split_once('"'));
    let targets = links.chain(pictures).map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors that a document's headings get where it is shown.
fn anchors(text: &str) -> HashSet<String> {
    let heading = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    prose(text).filter(|line| line.starts_with('#')).map(heading).collect()
}

#[test]
fn links_between_documents_hold() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if file.is_empty() { document.clone() } else { document.with_file_name(file) };
            assert!(target.exists(), "{}: {link}: no such file", document.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.contains(anchor), "{}: {link}: no such heading", document.display());
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count} links were found");
}

/// What is to be read before the first change can be read: the architecture, and a page for each decision.
#[test]
fn what_explains_the_code_is_short() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let decisions = fs::read_dir(docs.join("decisions")).unwrap();
    let decisions = decisions.map(|entry| (entry.unwrap().path(), 200));
    for (document, most) in decisions.chain([(docs.join("architecture.md"), 3_000)]) {
        let words = fs::read_to_string(&document).unwrap().split_whitespace().count();
        assert!(words <= most, "{}: {words} words, and {most} may be", document.display());
    }
}

/// The words of a command line of ours, as far as a shell takes them for its arguments and no description stands behind them.
fn words(line: &str) -> Vec<OsString> {
    let (mut words, mut word, mut quote, mut before) = (Vec::new(), None::<String>, None, ' ');
    for letter in line.chars() {
        match (quote, letter) {
            (Some(mark), _) if mark == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '|' | '&' | ';' | '>' | '#' | ')') => break,
            (None, ' ') if before == ' ' && !words.is_empty() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
        before = letter;
    }
    words.into_iter().chain(word).map(OsString::from).collect()
}

/// Each command line that stands in a block of a document can be typed.
#[test]
fn command_lines_in_documents_are_parsed() {
    let (mut count, mut refused) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap().replace("\\\n        ", "");
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let line = line.trim_start_matches(['$', ' ']);
            // What stands for something else is no command line.
            if !line.starts_with("shiftboss ") || line.contains(['<', '[', '$']) {
                continue;
            }
            // These have variables for what they need.
            let has_variables =
                ["broker", "serve", "relay"].iter().any(|it| line[10..].starts_with(it));
            let is_missing = |it: &clap::Error| it.kind() == ErrorKind::MissingRequiredArgument;
            if let Err(error) = Cli::of(words(line).into_iter())
                && error.use_stderr()
                && !(has_variables && is_missing(&error))
            {
                refused.push(format!("{}: {line}\n{error}", document.display()));
            }
            count += 1;
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 100, "{count} command lines were found");
}

/// The commands of the part of a text that begins with `heading`.
fn commands(text: &str, heading: &str) -> Vec<String> {
    let (_, part) = text.split_once(heading).unwrap();
    let part = part.split("\n## ").next().unwrap();
    part.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// A shell's command with the built program in its path, in a directory.
fn shell(directory: &Path, command: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_shiftboss")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", format!("{}:{path}", program.display()));
    shell.current_dir(directory);
    shell
}

fn done(directory: &Path, command: &str) -> String {
    let Output { status, stdout, stderr } = shell(directory, command).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Ends the daemon of the demonstration as Ctrl-C does, also when the test fails.
struct Interrupted(Child);

impl Drop for Interrupted {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        let _ = kill_process(pid, Signal::INT);
        let _ = self.0.wait();
    }
}

/// The README has room for one screen, and its demonstration works, command by command, as it is pasted.
#[test]
fn the_demonstration_works() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    assert!(readme.lines().count() <= 80);
    let directory = tempfile::tempdir().unwrap();
    let typed = commands(&readme, "## Try it in two terminals");
    let [make, serve, fetch, status, work, log, why, retry] = &typed[..] else {
        panic!("{typed:#?}")
    };
    let done = |command: &str| done(directory.path(), command);
    done(make);
    let daemon = shell(directory.path(), &format!("exec {serve}")).stderr(Stdio::null()).spawn();
    let daemon = Interrupted(daemon.unwrap());
    let socket = directory.path().join("demo-data/worker.sock");
    wait_until("the daemon listens", || socket.exists());
    done(fetch);
    wait_until("the tasks wait", || done(status).contains("Rows            100 waiting"));
    let output = done(work);
    assert_eq!(output.lines().count(), 100, "{output}");
    assert!(output.contains("7: 7 is a number\n"), "{output}");
    let log = done(log);
    assert!(log.contains("\n13 ") && log.matches("failure 1").count() == 1, "{log}");
    assert!(done(why).contains("failed with exit code 1;"));
    assert_eq!(done(retry), "Back in the queue: 13 (1 task).\n");
    done(fetch);
    wait_until("all are due again", || done(status).contains("Rows            100 waiting"));
    drop(daemon);
    let clean_up = readme.split("; `rm ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    done(&format!("rm {clean_up}"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

/// Commands that look end with the same codes, and docs/exit-codes.md says so of each.
#[test]
fn exit_codes_of_what_looks_are_documented() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/exit-codes.md");
    let text = fs::read_to_string(file).unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("garbage.db"), "no database").unwrap();
    for (code, why, database) in [
        (65, "the file is no sound database", "garbage.db"),
        (69, "there is no such database", "missing.db"),
    ] {
        let is_its = |line: &&str| line.split('|').nth(3).is_some_and(|cell| cell.trim() == why);
        let row = text.lines().find(is_its).unwrap();
        for command in ["status", "why", "tasks", "search", "log", "metrics", "top", "simulate"] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_shiftboss"));
            program.current_dir(directory.path()).args(["-t", database, command]);
            match command {
                "why" | "search" => program.arg("alpha"),
                "top" => program.arg("--once"),
                _ => &mut program,
            };
            assert_eq!(program.output().unwrap().status.code(), Some(code), "{command}");
            assert!(row.contains(&format!("`{command}`")), "{command}: {row}");
        }
    }
}

/// The command for the way back makes a database that the supervisor walks as it does.
#[test]
fn the_way_back_works() {
    let site = Site::new();
    let daemon = site.start();
    site.deliver("f", 1, "alpha 1\nbravo 2\n");
    site.wait_count(2);
    assert_eq!(site.ask("READY").split(' ').next(), Some("JOB"));
    daemon.stop();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/migrating-from-supervisor-py.md");
    let text = fs::read_to_string(file).unwrap();
    let arguments = text.lines().find_map(|line| line.trim().strip_prefix("shiftboss move "));
    let mut program = site.program();
    let output = program.arg("move").args(arguments.unwrap().split(' ')).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let connection = rusqlite::Connection::open(site.path("old.db")).unwrap();
    let mut plan = connection
        .prepare(
            "EXPLAIN QUERY PLAN SELECT attr_path FROM queue ORDER BY last_started ASC, \
             order_jitter, attr_path, fetcher_id, fetcher_run_started DESC",
        )
        .unwrap();
    let steps: Vec<String> =
        plan.query_map([], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].contains("queue_order_index"), "{steps:?}");
}
