//! `shiftboss status`: what it shows, of what, without which rights.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::UNIX_EPOCH;

use crate::common::reference::{dispatch, enqueue, register, version_2};
use crate::common::said::{self, json, said, text};
use crate::common::{Client, Site, wait_until};
use rusqlite::Connection;
use serde_json::{Value, json};

/// The user without rights.
const NOBODY: u32 = 65_534;

fn table(site: &Site) -> String {
    said(site, &["status"])
}

fn object(site: &Site, target: &str) -> Value {
    json(site, &["status", "-t", target])
}

/// Runs `command` on `target` and expects it to fail with `code`; returns what it said.
fn failure(site: &Site, target: &str, code: i32) -> String {
    let (found, said) = said::failure(&site.run(&["status", "-t", target]));
    assert_eq!(found, code, "{said}");
    said
}

/// `shiftboss status` by somebody who may read everything in the site and write nothing.
fn as_a_reader(site: &Site) -> Output {
    let program = site.path("program");
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_shiftboss"), &program).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["status", "--json", "-t"]).arg(site.target());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let directory = site.path(".");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
    let output = command.output();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    output.unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A daemon that died is told with its pid and when it wrote last; one that was stopped is not.
#[test]
fn a_daemon_that_died() {
    let (site, daemon) = Site::running(&[]);
    let pid = daemon.pid().as_raw_nonzero().get();
    daemon.kill();
    let shown = table(&site);
    assert!(shown.contains(&format!("pid {pid} ended without a clean stop")), "{shown}");
    assert!(shown.contains("last wrote"), "{shown}");
    assert_eq!(object(&site, "state.db")["not_stopped"]["pid"], pid);
    let checked = site.run(&["status", "--check"]);
    let why = String::from_utf8(checked.stderr).unwrap();
    assert!(checked.status.code() == Some(69) && why.contains("clean stop"), "{why}");
    site.start().stop();
    assert!(table(&site).contains("\nDaemon          not running\n"));
    assert_eq!(object(&site, "state.db")["not_stopped"], Value::Null);
}

/// Workers that are connected, idle ones too; not who looks.
#[test]
fn connected_workers() {
    let (site, _daemon) = Site::serving("alpha 0 1\n", &[]);
    let mut busy = Client::opted_in(&site, "HELLO 2 busy");
    assert!(busy.ask("READY").starts_with("JOB "));
    let mut idle = Client::opted_in(&site, "HELLO 2 idle");
    assert!(idle.ask("READY").starts_with("NOJOBS"));
    let names = || -> Vec<String> {
        let live = &object(&site, "socket")["live"];
        let workers = live["workers"].as_array().unwrap().iter();
        workers.map(|worker| worker["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(), ["busy", "idle"]);
    let shown = table(&site);
    let line = shown.lines().find(|line| line.starts_with("idle ")).unwrap();
    assert_eq!(line.split_whitespace().take(4).collect::<Vec<_>>(), ["idle", "0", "-", "1"]);
    drop(idle);
    wait_until("the worker is gone", || names() == ["busy"]);
}

/// 0 and silence when all is well; a line for each trouble, and 1 if one is an error.
#[test]
fn a_check() {
    let (site, daemon) = Site::running(&[]);
    let check = || {
        let output = site.run(&["status", "--check", "-t", "socket"]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(check(), (Some(0), String::new()));
    assert!(site.run(&["pause", "-t", "socket"]).status.success());
    assert_eq!(check().0, Some(0), "who paused it knows");
    assert!(check().1.starts_with("warning: paused: "), "{}", check().1);
    daemon.stop();
    let daemon = site.start();
    assert_eq!(daemon.warnings(&["is paused", "resume"]).len(), 1);
    assert!(site.run(&["resume", "-t", "socket"]).status.success());
    let locked = Connection::open(site.database()).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(site.ask("READY"), "");
    let (code, told) = check();
    assert!(
        code == Some(1) && told.starts_with("error: storage: ") && told.contains("locked"),
        "{told}"
    );
    assert!(table(&site).contains("nothing can be written since "));
    locked.execute_batch("ROLLBACK").unwrap();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(check(), (Some(0), String::new()));
    daemon.freeze();
    let (code, told) = check();
    assert!(code == Some(1) && told.starts_with("error: daemon: no answer"), "{told}");
    daemon.thaw();
}

/// A classic daemon that runs and does not answer is told as any other; so is one that does not run.
#[test]
fn a_check_of_a_classic_daemon() {
    let (site, daemon) = Site::running(&["--classic"]);
    let check = || {
        let output = site.run(&["status", "--check"]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(check(), (Some(0), String::new()));
    daemon.freeze();
    let (code, told) = check();
    assert!(code == Some(1) && told.starts_with("error: daemon: no answer"), "{told}");
    daemon.thaw();
    assert_eq!(check(), (Some(0), String::new()));
    daemon.stop();
    assert_eq!(check().0, Some(69));
}

/// A socket leads to its daemon's database, also after the daemon was killed.
#[test]
fn a_socket_leads_to_the_database() {
    let (site, daemon) = Site::running(&[]);
    assert_eq!(object(&site, "socket"), object(&site, "state.db"));
    daemon.kill();
    let left = object(&site, "socket");
    assert_eq!((&left["database"], &left["daemon"]), (&json!(site.target()), &Value::Null));
    site.start().stop();
    assert!(failure(&site, "socket", 69).contains("socket"));
    assert_eq!(object(&site, "state.db")["daemon"], Value::Null);
}

/// Somebody who may write nothing sees the queue of a daemon that runs, of one that was stopped,
/// and of one that was killed, and leaves no file behind.
#[test]
fn without_the_right_to_write() {
    let (site, daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    let rows = || {
        let found: Value = serde_json::from_str(&text(&as_a_reader(&site))).unwrap();
        (found["rows"]["pending"].as_i64(), found["daemon"].is_null())
    };
    assert_eq!(rows(), (Some(2), false));
    daemon.stop();
    let before = names(&site.path("."));
    assert_eq!(rows(), (Some(2), true));
    assert_eq!(names(&site.path(".")), before);
    let daemon = site.start();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    daemon.kill();
    assert_eq!(rows(), (Some(1), true));
}

/// A file left in WAL mode is read where nothing can be made, as long as its log is not missed.
#[test]
fn a_file_left_in_wal_mode() {
    let (site, daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    daemon.stop();
    site.edit("PRAGMA journal_mode = wal; UPDATE rows SET payload = 'x'");
    let before = names(&site.path("."));
    assert!(!before.contains(&"state.db-wal".to_owned()), "{before:?}");
    assert!(text(&as_a_reader(&site)).contains("\"pending\":2"));
    fs::write(site.path("state.db-wal"), "what only the log knows").unwrap();
    let output = as_a_reader(&site);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("state.db-wal") && said.contains("serve"), "{said}");
}

/// Another user cannot open the locks, which he could take then, and yet is told who runs.
#[test]
fn another_user_is_told_who_runs() {
    crate::common::root!();
    let (site, daemon) = Site::running(&[]);
    let pid = daemon.pid().as_raw_nonzero().to_string();
    for target in ["socket", "state.db"] {
        let output = site.as_somebody_else(&["status", "--json", "-t", target]).output().unwrap();
        let told = text(&output);
        assert!(told.contains(&format!("\"pid\":{pid}")), "{target}: {told}");
    }
    for lock in [".state.db.shiftboss-lock", ".socket.shiftboss-lock"] {
        let mode = fs::metadata(site.path(lock)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{lock}");
    }
    daemon.stop();
    let output = site.as_somebody_else(&["status", "--json"]).output().unwrap();
    assert!(text(&output).contains("\"daemon\":null"));
}

/// A list that was named by a clock that was ahead hides all that come later: it is named, until it is gone.
#[test]
fn a_list_of_the_future() {
    let (site, _daemon) = Site::running(&[]);
    let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    site.deliver("f", now, "alpha 1\n");
    // A number that is no time, and one that another machine's clock may give.
    site.deliver("serial", 20_261_121_130_000, "bravo 1\n");
    site.deliver("near", now + 5, "charlie 1\n");
    site.wait_count(3);
    let checked = || site.run(&["status", "--check"]);
    assert!(checked().status.success(), "{}", text(&checked()));
    for name in [format!("f.{}.txt", now + 90_000), format!("g.{}.txt.part", now + 900_000_000)] {
        site.write(&name, "delta 1\n");
        wait_until("it is named", || {
            let said = String::from_utf8_lossy(&checked().stdout).into_owned();
            said.contains(&format!("{name} begins in ")) && checked().status.code() == Some(1)
        });
        site.remove(&name);
        wait_until("all is well", || checked().status.success());
    }
}

/// A database of the reference is shown, said to be not yet taken over, and left as it is.
#[test]
fn a_database_of_the_reference() {
    let site = Site::new();
    let connection = version_2(&site.database());
    register(&connection, "f", 1, true);
    enqueue(&connection, "f", 1, "alpha", "0 1");
    enqueue(&connection, "f", 1, "bravo", "0 1");
    dispatch(&connection, "f", "bravo", 1_000);
    connection.close().unwrap();
    let before = fs::read(site.database()).unwrap();
    let shown = table(&site);
    assert!(shown.contains("not yet taken over: start `shiftboss serve`"), "{shown}");
    assert!(shown.contains("1 waiting, 1 running, 0 ended"), "{shown}");
    let found = object(&site, "state.db");
    assert_eq!((&found["schema_version"], &found["policy"]), (&json!(2), &Value::Null));
    assert_eq!(fs::read(site.database()).unwrap(), before);
    assert!(!site.path(".state.db.shiftboss-lock").exists());
}

/// What cannot be shown is told apart by exit code, with what to do; nothing is made.
#[test]
fn what_cannot_be_shown() {
    let site = Site::new();
    assert!(failure(&site, "state.db", 69).contains("give the database"));
    assert!(!site.database().exists());
    fs::write(site.database(), "alpha 0 1\n".repeat(200)).unwrap();
    assert!(failure(&site, "state.db", 65).contains("state.db"));
    fs::remove_file(site.database()).unwrap();
    let other = Connection::open(site.database()).unwrap();
    other.execute_batch("CREATE TABLE users (name)").unwrap();
    assert!(failure(&site, "state.db", 78).contains("not the database of a supervisor"));
    assert!(failure(&site, ".", 78).contains("is no regular file"));
    assert_eq!(site.run(&["backup", "copy.db"]).status.code(), Some(78));
    fs::remove_file(site.database()).unwrap();
    version_2(&site.database()).execute_batch("PRAGMA user_version = 99").unwrap();
    assert!(failure(&site, "state.db", 78).contains("newer"));
}

/// Names and keys cannot move the cursor of whoever looks.
#[test]
fn what_comes_from_outside_is_escaped() {
    let site = Site::new();
    site.write("f\u{1b}[31m.1.txt", "evil\u{1b}[2J\u{7}key 0 1\n");
    site.write("b\u{1b}[0m\n.x.txt", "");
    let _daemon = site.start();
    site.wait_count(1);
    wait_until("the bad name is noted", || table(&site).contains("Rejected"));
    let shown = table(&site);
    assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    for escaped in ["evil\\u{1b}[2J\\u{7}key (never run)", "f\\u{1b}[31m", "[0m"] {
        assert!(shown.contains(escaped), "{escaped}: {shown}");
    }
    let said = failure(&site, "no\u{1b}[2J\u{e0100}such\nfile", 69);
    assert!(
        said.contains("no\\u{1b}[2J\\u{e0100}such\\nfile") && said.lines().count() == 1,
        "{said}"
    );
}

/// The fetchers that the daemon runs itself are told alike by the database, the socket and protocol 2; without a daemon, or an input
/// directory, nothing is said to be running.
#[test]
fn fetchers_that_the_daemon_runs() {
    let site = Site::new();
    site.start().stop();
    site.edit(
        "INSERT INTO documents VALUES ('fetcher/old', json_object('name', 'old', 'state', 'idle'))",
    );
    let daemon = site.start();
    wait_until("a fetcher that is not configured is forgotten", || {
        object(&site, "state.db")["managed_fetchers"] == json!([])
    });
    site.edit(
        "INSERT INTO documents VALUES
            ('fetcher/links', json_object('name', 'links', 'state', 'running', 'run_started', unixepoch() - 7500,
                'last_run', json_object('started', 100, 'ended', 112, 'exit_code', 7, 'message', 'no' || char(27) || '[2J'),
                'next_run', 1)),
            ('fetcher/notes', json_object('name', 'notes', 'state', 'idle'))",
    );
    let lost = |seconds: u32| {
        site.edit(&format!(
            "INSERT OR REPLACE INTO documents VALUES ('input', json_object('lost',
                json_object('since', unixepoch() - {seconds}, 'reason', 'it is gone')))"
        ));
    };
    let links = json!({
        "name": "links", "state": "running", "run_started": null, "next_run": 1,
        "last_run": {"started": 100, "ended": 112, "exit_code": 7, "message": "no\u{1b}[2J"},
    });
    let notes = json!({
        "name": "notes", "state": "idle", "run_started": null, "next_run": null, "last_run": null,
    });
    let mut operator = Client::opted_in(&site, "HELLO 2 operator");
    let told = serde_json::from_str(&operator.ask("STATUS")).unwrap();
    for mut found in [object(&site, "state.db"), object(&site, "socket"), told] {
        let fetchers = &mut found["managed_fetchers"];
        assert!(fetchers[0]["run_started"].take().is_i64(), "{fetchers}");
        assert_eq!(*fetchers, json!([links, notes]));
    }
    lost(9_000);
    let found = &object(&site, "state.db")["managed_fetchers"][0];
    assert_eq!((&found["state"], &found["run_started"]), (&json!("waiting"), &Value::Null));
    lost(60);
    let began = &object(&site, "state.db")["managed_fetchers"][0]["run_started"];
    assert!(began.is_i64(), "it began before");
    daemon.stop();
    let shown = table(&site);
    let links = shown.lines().rfind(|line| line.starts_with("links ")).unwrap();
    assert!(!links.contains("running") && links.ends_with(" -"), "{shown}");
    assert_eq!(object(&site, "state.db")["managed_fetchers"][0]["state"], "running");
}

/// Who may not connect cannot know whether the daemon answers, and is told so; other trouble comes first.
#[test]
fn a_check_by_who_may_not_connect() {
    crate::common::root!();
    let (site, _daemon) = Site::running(&[]);
    let check = || {
        let mut command = site.as_somebody_else(&["status", "--check"]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = check();
    assert!(code == Some(77) && told.contains("whether the daemon answers is not known"), "{told}");
    site.write("a.b.txt", "");
    wait_until("the file is rejected", || {
        let (code, told) = check();
        code == Some(1) && told.contains("is not known")
    });
}
