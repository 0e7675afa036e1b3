//! Single tasks: `shiftboss add` and `cancel` against the built daemon, and who may.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::said::told;
use crate::common::{Client, Site, root};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use serde_json::Value;

/// A group that no user of this machine is in.
const OPERATORS: u32 = 42_424;
const SINGLE: &str = "SELECT attr_path, payload, status FROM singles ORDER BY attr_path, task";

impl Site {
    fn shiftboss(&self, words: &[&str]) -> (i32, String, String) {
        told(&self.run(words))
    }

    fn add(&self, key: &str, payload: &str) -> String {
        let (code, stdout, stderr) = self.shiftboss(&["add", key, payload]);
        assert_eq!(code, 0, "{stderr}");
        stdout
    }

    /// Runs `shiftboss` with something on its standard input.
    fn fed(&self, words: &[&str], input: &[u8]) -> (i32, String, String) {
        let mut command = self.program();
        command.args(words).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        told(&child.wait_with_output().unwrap())
    }
}

/// What was acknowledged is there after a kill, and until a job of it succeeds.
#[test]
fn a_task_outlives_the_daemon_and_its_failures() {
    let (site, daemon) = Site::running(&[]);
    assert_eq!(site.add("alpha", "1.0 1.1"), "Added alpha; it is the next key.\n");
    daemon.kill();
    let daemon = site.start();
    let known = "alpha was added already: this payload waits, or the ID is known.\n";
    assert_eq!(site.add("alpha", "1.0 1.1"), known);
    assert_eq!(site.ask("READY"), "JOB alpha 1.0 1.1\n");
    assert_eq!(site.ask("DONE alpha 3"), "NOJOBS\n");
    daemon.kill();
    let _daemon = site.start();
    assert_eq!(site.sql(SINGLE), ["alpha|1.0 1.1|failed"]);
    let (_, why, _) = site.shiftboss(&["why", "alpha"]);
    assert!(why.contains("delayed: its task failed, and waits again by itself"), "{why}");
    assert!(why.contains("@tasks"), "{why}");
    let (code, stdout, _) = site.shiftboss(&["retry", "alpha"]);
    assert_eq!((code, &*stdout), (0, "Back in the queue: alpha (1 task).\n"));
    assert_eq!(site.ask("READY"), "JOB alpha 1.0 1.1\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    assert_eq!(site.sql(SINGLE), [""; 0]);
    let (_, log, _) = site.shiftboss(&["log", "--json"]);
    let log: Value = serde_json::from_str(&log).unwrap();
    let fetchers = log["attempts"].as_array().unwrap().iter().map(|ended| &ended["fetcher"]);
    assert_eq!(fetchers.collect::<Vec<_>>(), ["@tasks", "@tasks"]);
}

/// The expected turn is told, for people and for programs; a waiting worker gets the task at once.
#[test]
fn the_expected_turn_is_told() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 1\nbravo 1\n");
    let _daemon = site.start();
    let (first, second) = (site.next_key("READY").unwrap(), site.next_key("READY").unwrap());
    site.ask(&format!("DONE {first} 0"));
    site.write("f.2.txt", format!("{first} 2\n"));
    site.wait_sql("SELECT count(*) FROM queue WHERE fetcher_run_started = 2", &["1"]);
    assert_eq!(site.add("new", "1"), "Added new; it is the next key.\n");
    assert_eq!(site.add(&first, "3"), format!("Added {first}; 1 key before it.\n"));
    let told = site.add(&first, "4");
    assert_eq!(told, format!("Added {first}; 1 key before it, after 1 other task of this key.\n"));
    assert_eq!(site.add(&second, "5"), format!("Added {second}.\n"), "its key is in flight");
    let (_, stdout, _) = site.shiftboss(&["add", "--json", "more", "1"]);
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&told["added"], &told["key"]), (&Value::Bool(true), &"more".into()));
    assert_eq!((&told["exact"], &told["tasks_before"]), (&Value::Bool(true), &0.into()));
    let mut worker = Client::leased(&site, 60);
    while worker.ask("READY").starts_with("JOB ") {}
    worker.write(b"READY 600\n");
    site.add("woken", "1");
    assert!(worker.line().ends_with(" woken 1\n"));
}

/// A payload may be as long as a line of a list, and comes from a file or from standard input.
#[test]
fn a_long_payload_comes_from_a_file() {
    let (site, _daemon) = Site::running(&[]);
    let payload = "x".repeat(1024 * 1024 - "alpha ".len());
    let (code, stdout, stderr) =
        site.fed(&["add", "--file", "-", "alpha"], format!("{payload}\n").as_bytes());
    assert_eq!((code, &*stdout), (0, "Added alpha; it is the next key.\n"), "{stderr}");
    assert_eq!(site.ask("READY"), format!("JOB alpha {payload}\n"));
    std::fs::write(site.path("long"), format!("{payload}x")).unwrap();
    std::fs::write(site.path("two"), "1\n2\n").unwrap();
    for (file, why) in [("long", "more than 1048576 bytes"), ("two", "a line end in it")] {
        let (code, _, stderr) = site.shiftboss(&["add", "--file", file, "alpha"]);
        assert!(code == 65 && stderr.contains(why), "{code} {stderr}");
    }
    let (code, _, stderr) = site.shiftboss(&["add", "two words", "1"]);
    assert!(code == 64 && stderr.contains("contains a space"), "{code} {stderr}");
    let (code, _, stderr) = site.shiftboss(&["add", "--file", "none", "alpha"]);
    assert!(code == 65 && stderr.contains("cannot read none"), "{code} {stderr}");
    let (code, ..) = site.shiftboss(&["add", "alpha", "-1"]);
    assert_eq!(code, 0);
    for words in [&["add", "alpha", ""][..], &["add", "--file", "/dev/null", "alpha"]] {
        let (_, _, why) = site.shiftboss(words);
        assert!(why.contains("alpha cannot be a single task: the payload is empty"), "{why}");
    }
}

/// Of many lines the faulty ones are named, and the others added.
#[test]
fn many_lines_are_added() {
    let (site, _daemon) = Site::running(&[]);
    let lines: String = (0..2_000).map(|number| format!("key{number} {number}\n")).collect();
    let (code, stdout, stderr) = site.fed(&["add", "--lines"], lines.as_bytes());
    assert_eq!((code, &*stdout), (0, "Added 2000 tasks.\n"), "{stderr}");
    assert_eq!(site.sql("SELECT count(*) FROM singles"), ["2000"]);
    std::fs::write(site.path("lines"), "key0 0\nfaulty\r\nkey0 1\n\nlast 1").unwrap();
    let (code, stdout, stderr) = site.shiftboss(&["add", "--lines", "--file", "lines"]);
    assert_eq!((code, &*stdout), (65, "Added 2 tasks; 1 task added before.\n"));
    assert!(stderr.contains("lines: line 2 was not added: no space after the key"), "{stderr}");
    assert!(stderr.contains("line 4 was not added: the line is empty"), "{stderr}");
    assert!(stderr.contains("not added: 2 faulty lines"), "{stderr}");
    let (code, stdout, _) = site.fed(&["add", "--lines", "--json"], b"a 1\nb 2\n");
    let keys: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["key"].clone())
        .collect();
    assert_eq!((code, keys), (0, vec!["a".into(), "b".into()]));
}

/// What has an ID is added once, also when its task is done and the daemon was killed; of lines each has its own.
#[test]
fn a_task_with_an_id_is_added_once() {
    let site = Site::new();
    let add = |payload| site.shiftboss(&["add", "--id", "e:1", "alpha", payload]);
    let daemon = site.start();
    assert_eq!(add("1").1, "Added alpha; it is the next key.\n");
    daemon.kill();
    let _daemon = site.start();
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    for payload in ["1", "2"] {
        assert!(add(payload).1.contains("alpha was added already"));
    }
    let lines = |id| site.fed(&["add", "--lines", "--id", id], b"a 1\nfaulty\nb 1\n");
    assert_eq!(lines("x").1, "Added 2 tasks.\n");
    let first = site.next_key("READY").unwrap();
    let second = site.next_key(&format!("DONE {first} 0")).unwrap();
    assert_eq!(site.ask(&format!("DONE {second} 0")), "NOJOBS\n");
    assert_eq!(lines("x").1, "Added 0 tasks; 2 tasks added before.\n");
    assert_eq!(lines("y").1, "Added 2 tasks.\n");
    assert_eq!(add("two words").0, 0);
    let (code, _, stderr) = site.shiftboss(&["add", "--id", "two words", "a", "1"]);
    assert!(code == 64 && stderr.contains("give one word of at most 200 bytes"), "{stderr}");
}

/// There is room for so many; what does not fit is told, and can be added later.
#[test]
fn a_full_queue_is_told() {
    let (site, _daemon) = Site::running(&["--max-single-tasks", "2"]);
    site.add("alpha", "1");
    let (code, stdout, stderr) = site.fed(&["add", "--lines"], b"b 1\nc 1\nd 1\n");
    assert_eq!((code, &*stdout), (75, ""));
    assert!(stderr.contains("line 2: ") && stderr.contains("max_single_tasks"), "{stderr}");
    assert_eq!(site.shiftboss(&["add", "c", "1"]).0, 75);
    let (code, told, _) = site.shiftboss(&["status", "--check", "-t", "socket"]);
    assert!(code == 1 && told.starts_with("error: single tasks: 2 kept, "), "{told}");
    let (_, table, _) = site.shiftboss(&["status", "-t", "socket"]);
    assert!(table.contains("\nSingle tasks    2 kept, and max_single_tasks is 2: "), "{table}");
    assert_eq!(site.shiftboss(&["cancel", "alpha"]).0, 0);
    site.add("c", "1");
}

/// What waits or failed is deleted; what a worker has is spared, and told.
#[test]
fn cancelling_deletes() {
    let (site, _daemon) = Site::running(&[]);
    let cancel = || site.shiftboss(&["cancel", "alpha"]);
    let (code, _, stderr) = cancel();
    assert!(code == 65 && stderr.contains("no single task"), "{code} {stderr}");
    site.add("alpha", "1");
    site.add("alpha", "2");
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    let (code, stdout, stderr) = cancel();
    assert_eq!((code, &*stdout), (75, "Deleted 1 single task of alpha.\n"));
    assert!(stderr.contains("one of alpha is in flight"), "{stderr}");
    assert_eq!(site.ask("DONE alpha 1"), "NOJOBS\n");
    assert_eq!(site.sql(SINGLE), ["alpha|1|failed"]);
    assert_eq!(cancel().0, 0);
    assert_eq!(site.sql("SELECT count(*) FROM queue"), ["0"]);
}

/// A command of ours as another user, in these supplementary groups. Only root can play him.
fn as_member(site: &Site, words: &[&str], groups: &'static [u32]) -> Command {
    let somebody = site.as_somebody_else(words);
    let mut command = Command::new(somebody.get_program());
    command.args(somebody.get_args()).current_dir(site.path(".")).stdin(Stdio::null());
    command.env("SHIFTBOSS_TARGET", site.target());
    let become_member = move || {
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        setgroups(&groups)?;
        setgid(Gid::from_raw(65_534))?;
        setuid(Uid::from_raw(65_534))?;
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls, and allocates, which the C library allows there.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(become_member);
    }
    command
}

/// Others may not; members of the operators' group may, also by a supplementary group.
#[test]
fn only_operators_add() {
    root!();
    let site = Site::new();
    let group = OPERATORS.to_string();
    let open = ["--socket-mode", "0666"];
    let daemon = site.start_with(&open);
    let run = |words: &[&str], groups| told(&as_member(&site, words, groups).output().unwrap());
    let add = ["add", "alpha", "1"];
    let (code, _, stderr) = run(&add, &[OPERATORS]);
    assert!(code == 77 && stderr.contains("--operator-group"), "{code} {stderr}");
    daemon.stop();
    let daemon = site.start_with(&[&open[..], &["--operator-group", &group]].concat());
    assert_eq!(run(&add, &[]).0, 77);
    assert_eq!(run(&["cancel", "alpha"], &[1]).0, 77);
    let (code, stdout, stderr) = run(&add, &[1, OPERATORS]);
    assert_eq!((code, &*stdout), (0, "Added alpha; it is the next key.\n"), "{stderr}");
    for word in ["pause", "resume", "status"] {
        let (code, _, stderr) = run(&[word], &[OPERATORS]);
        assert_eq!(code, 0, "{word} {stderr}");
    }
    daemon.stop();
    // The primary group counts, too.
    let _daemon = site.start_with(&[&open[..], &["--operator-group", "65534"]].concat());
    assert_eq!(run(&["cancel", "alpha"], &[]).0, 0);
}

/// The classic rules know none of it.
#[test]
fn classic_knows_no_single_tasks() {
    let (site, _daemon) = Site::running(&["--classic"]);
    assert_eq!(site.send(b"HELLO 2 w\nADD alpha 1\n"), "");
    let (code, _, stderr) = site.shiftboss(&["add", "alpha", "1"]);
    assert!(code == 69 && stderr.contains("--classic"), "{code} {stderr}");
}

/// A group that is not there is refused, before anything is made.
#[test]
fn an_unknown_group_is_refused() {
    let site = Site::bare();
    let (code, stderr) = site.refused(site.serve(&["--operator-group", "no such group"]));
    assert!(
        code == 78 && stderr.contains("no group \"no such group\" for --operator-group"),
        "{stderr}"
    );
    assert!(!site.input().exists() && !site.path("state.db").exists());
    std::fs::write(site.path("boss.toml"), "operator_group = 'no such group'\n").unwrap();
    let (code, stdout, _) = site.shiftboss(&["check", "--config", "boss.toml"]);
    assert!(code == 78 && stdout.contains("for --operator-group"), "{code} {stdout}");
}
