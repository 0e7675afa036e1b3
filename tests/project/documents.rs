//! The documents held against the source and the program: each test that docs/reliability.md names exists, links
//! between documents hold, and what the README and the way back from shiftboss show works as it is written.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

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
        "protocol",
        "spool/src",
        "tests",
        "benches/src",
        "soak/src",
        "testbed/src",
        "manual",
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
    [".", "docs", "docs/spec"].iter().flat_map(|name| in_directory(root.join(name))).collect()
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("    "))
}

/// Where a document's links go: what stands between `](` and `)`.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
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

/// The commands of the part of a text that begins with `heading`.
fn commands(text: &str, heading: &str) -> Vec<String> {
    let (_, part) = text.split_once(heading).unwrap();
    let part = part.split("\n## ").next().unwrap();
    part.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// A shell's command with the built program in its path.
fn shell(command: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_shiftboss")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", format!("{}:{path}", program.display()));
    shell
}

fn done(command: &str) -> String {
    let Output { status, stdout, stderr } = shell(command).output().unwrap();
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
    let place = directory.path().display().to_string();
    let typed: Vec<String> = commands(&readme, "## Try it in three terminals")
        .into_iter()
        .map(|line| line.replace("/tmp", &place))
        .collect();
    let [serve, fetch, status, work, log] = &typed[..] else { panic!("{typed:#?}") };
    let daemon = shell(&format!("exec {serve}")).stderr(Stdio::null()).spawn().unwrap();
    let _daemon = Interrupted(daemon);
    let socket = directory.path().join("demo.sock");
    wait_until("the daemon listens", || socket.exists());
    done(fetch);
    wait_until("the tasks wait", || done(status).contains("Rows            100 waiting"));
    let output = done(work);
    assert_eq!(output.lines().count(), 100, "{output}");
    assert!(output.contains("7: 7 is a number\n"), "{output}");
    assert_eq!(done(log).matches("success").count(), 20);
    done(fetch);
    wait_until("all are due again", || done(status).contains("Rows            100 waiting"));
}

/// The SQL for the way back runs on a database that the program has made and left.
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
    let (_, sql) = text.split_once("state.db 'CREATE").unwrap();
    let (sql, _) = sql.split_once('\'').unwrap();
    let connection = rusqlite::Connection::open(site.database()).unwrap();
    connection.execute_batch(&format!("CREATE{sql}")).unwrap();
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
