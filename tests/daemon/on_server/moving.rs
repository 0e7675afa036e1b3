//! `shiftboss move`: a queue goes from a file to a server and back, with all that hangs on it; what is refused; and moves
//! that are broken off.
//!
//! In commands `state.db` stands for the database on the server (`Site::run`); `file.db` is a file.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use rusqlite::Connection;
use shiftboss_testbed::proxy::Proxy;

use super::together::lock;
use crate::common::reference::version_2;
use crate::common::said::{code_and_error, said, told};
use crate::common::server::{Database, admin};
use crate::common::wait::pause;
use crate::common::{Client, Daemon, Site, attempt_of, list_of, wait_until};

const CUT_OFF: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'shiftboss-move' AND datname = current_database()";
const WAITS: &str = "SELECT count(*) = 1 FROM pg_stat_activity
    WHERE application_name = 'shiftboss-move' AND datname = current_database() AND wait_event_type = 'Lock'";
const LISTED: [&str; 5] = ["alpha", "bravo", "charlie", "delta", "echo"];

fn server(site: &Site) -> &Database {
    site.server().unwrap()
}

/// A daemon with this database, under the name that the moves here give.
fn start_on(site: &Site, database: &str) -> Daemon {
    let url = server(site).url();
    let mut command = site.program();
    match database {
        "state.db" => command.args(["serve", "--daemon-name", "here", &url, "input", "socket"]),
        file => command.args(["serve", file, "input", "socket"]),
    };
    site.spawn(command).ready()
}

/// The next keys in the order of dispatch.
fn next_keys(site: &Site, database: &str) -> Vec<String> {
    let (_, text, _) = told(&site.run(&["tasks", "--next", "--json", "-t", database]));
    let keys = text.split("\"key\":\"").skip(1);
    keys.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// What `status` counts.
fn counts(site: &Site, database: &str) -> Vec<String> {
    let (_, text, _) = told(&site.run(&["status", "-t", database]));
    let counts = ["Rows", "f  ", "g  "];
    let is_count = |line: &&str| counts.iter().any(|count| line.starts_with(count));
    text.lines().filter(is_count).map(str::to_owned).collect()
}

/// Where `status` says that a queue is now.
fn moved_to(site: &Site, database: &str) -> String {
    let (_, text, _) = told(&site.run(&["status", "-t", database]));
    let (_, moved) = text.split_once("\nMoved           the queue is in ").expect("it was moved");
    let (code, said, _) = told(&site.run(&["status", "--check", "-t", database]));
    assert!(code == 1 && said.starts_with("error: moved: "), "{said}");
    moved.split(" now: ").next().unwrap().to_owned()
}

fn moves(site: &Site, from: &str, to: &str) -> String {
    said(site, &["move", "--daemon-name", "here", from, to])
}

fn refused(site: &Site, arguments: &[&str], code: i32, why: &str) {
    let (found, error) = code_and_error(&site.run(arguments));
    assert!(found == code && error.contains(why), "{arguments:?}: {found} {error}");
}

/// A queue in `file.db` with five keys, and nobody who uses it.
fn a_queue() -> Site {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\ncharlie 0 1\ndelta 0 1\n");
    site.write("g.2.txt.part", "bravo 0 2\necho 0 2\n");
    let daemon = start_on(&site, "file.db");
    wait_until("the lists are read", || next_keys(&site, "file.db").len() == LISTED.len());
    daemon.stop();
    site
}

/// The keys that are handed out until there are none, in order.
fn work(site: &Site) -> Vec<String> {
    let mut keys = Vec::new();
    let mut next = site.next_key("READY");
    while let Some(key) = next {
        next = site.next_key(&format!("DONE {key} 0"));
        keys.push(key);
    }
    keys
}

/// Lists with their positions, jobs that are out and that ended, single tasks and the order go there and back, and daemons
/// go on with them.
#[test]
fn a_queue_goes_there_and_back() {
    let site = a_queue();
    let daemon = start_on(&site, "file.db");
    let attempt = attempt_of(&Client::leased(&site, 60).ask("READY"));
    let failed = site.next_key("READY").unwrap();
    let out = site.next_key(&format!("DONE {failed} 7")).unwrap();
    assert!(site.run(&["add", "-t", "socket", "single", "1"]).status.success());
    daemon.stop();
    let (order, counted) = (next_keys(&site, "file.db"), counts(&site, "file.db"));
    assert!(order.len() > 2 && counted.len() == 3, "{order:?} {counted:?}");

    let said = moves(&site, "file.db", "state.db");
    let moved = "Moved: 2 lists, 6 tasks, 1 kept single task, 6 keys, 1 attempt.";
    let owner = "No daemon starts on file.db any more.\nThe lists belong to the daemon here: ";
    assert!(said.starts_with(moved) && said.contains(owner), "{said}");
    assert_eq!((next_keys(&site, "state.db"), counts(&site, "state.db")), (order, counted));
    refused(&site, &["serve", "file.db", "input", "socket"], 78, "was moved to postgres://");
    assert!(moved_to(&site, "file.db").starts_with("postgres://"));
    let daemon = start_on(&site, "state.db");
    assert_eq!(Client::leased(&site, 60).ask(&format!("DONE {attempt} 0")), "OK\n");
    site.append("g.2.txt.part", "foxtrot 0 2\n");
    let first = site.next_key("READY").unwrap();
    assert!(site.ask(&format!("DONE {first} 0")).starts_with("JOB "));
    site.wait_sql("SELECT payload FROM queue WHERE attr_path = 'foxtrot'", &["0 2"]);
    daemon.stop();
    let (order, counted) = (next_keys(&site, "state.db"), counts(&site, "state.db"));

    moves(&site, "state.db", "back.db");
    assert_eq!((next_keys(&site, "back.db"), counts(&site, "back.db")), (order.clone(), counted));
    assert_eq!(moved_to(&site, "state.db"), site.path("back.db").display().to_string());
    let (code, error) = site.refused(site.serve(&[]));
    assert!(code == 78 && error.contains("was moved to /") && error.contains("back.db"), "{error}");
    let _daemon = start_on(&site, "back.db");
    let keys = work(&site);
    assert!(keys.starts_with(&order) && !keys.contains(&out), "{keys:?}");
}

/// A daemon that lives keeps its queue where it is, and keeps others away, wherever it is.
#[test]
fn a_living_daemon_is_named() {
    let site = a_queue();
    let daemon = start_on(&site, "file.db");
    refused(&site, &["move", "file.db", "state.db"], 75, "is using");
    daemon.stop();
    let daemon = start_on(&site, "state.db");
    refused(&site, &["move", "file.db", "state.db"], 75, "the daemon here uses it: stop it first");
    refused(&site, &["move", "state.db", "new.db"], 75, "the daemon here uses it: stop it first");
    assert!(!site.path("new.db").exists());
    assert!(site.next_key("READY").is_some());
    daemon.kill();
    moves(&site, "state.db", "new.db");
    assert_eq!(next_keys(&site, "new.db").len(), LISTED.len() - 1);
}

/// What was there before stays.
#[test]
fn a_target_must_be_empty() {
    let site = a_queue();
    fs::write(site.path("other"), "mine").unwrap();
    assert!(site.run(&["migrate"]).status.success(), "an empty queue");
    moves(&site, "file.db", "state.db");
    fs::copy(site.path("file.db"), site.path("copy.db")).unwrap();
    let copy = Connection::open(site.path("copy.db")).unwrap();
    copy.execute("DELETE FROM documents WHERE name = 'moved'", []).unwrap();
    refused(&site, &["move", "copy.db", "state.db"], 73, "there is a queue in postgres://");
    refused(&site, &["move", "state.db", "copy.db"], 73, "exists already");
    refused(&site, &["move", "state.db", "other"], 73, "exists already");
    assert_eq!(fs::read(site.path("other")).unwrap(), b"mine");
    assert_eq!(next_keys(&site, "state.db").len(), LISTED.len());
}

#[test]
fn one_end_is_a_file_and_the_other_a_server() {
    let site = a_queue();
    refused(&site, &["move", "file.db", "file.db"], 64, "both files");
    refused(&site, &["move", "state.db", "state.db"], 64, "both on a server");
    refused(&site, &["move", "file.db", "postgres://h:port/db"], 64, "cannot be used");
    refused(&site, &["move", "file.db", "postgres://127.0.0.1:1/db"], 69, "cannot connect");
    refused(&site, &["move", "none.db", "state.db"], 69, "there is no database");
    refused(&site, &["move", "state.db", "new.db"], 78, "there is no queue in this database");
    assert!(!site.path("new.db").exists());
}

/// A database of the Python supervisor, of another version or without leases is to be taken over first.
#[test]
fn another_version_is_taken_over_first() {
    let site = a_queue();
    drop(version_2(&site.path("old.db")));
    let before = fs::read(site.path("old.db")).unwrap();
    refused(&site, &["move", "old.db", "state.db"], 78, "start `shiftboss serve` on it once");
    assert_eq!(fs::read(site.path("old.db")).unwrap(), before);
    start_on(&site, "old.db").stop();
    moves(&site, "old.db", "state.db");
    let file = Connection::open(site.path("file.db")).unwrap();
    file.execute(
        "UPDATE documents SET value = json_set(value, '$.policy', 'classic') WHERE name = 'daemon'",
        [],
    )
    .unwrap();
    refused(&site, &["move", "file.db", "state.db"], 78, "used without leases last");
    file.execute_batch("PRAGMA user_version = 99").unwrap();
    refused(&site, &["move", "file.db", "state.db"], 78, "use the newer shiftboss");
    server(&site).edit("COMMENT ON SCHEMA shiftboss IS 'shiftboss, queue version 99'");
    refused(&site, &["move", "state.db", "new.db"], 78, "newer shiftboss");
}

/// Neither a role without rights nor a file that may not be written is used.
#[test]
fn missing_rights_are_named() {
    let site = a_queue();
    let role = format!("mover_{}", std::process::id());
    admin(&format!("CREATE ROLE {role} LOGIN"));
    let poor = server(&site).url().replacen("shiftboss@", &format!("{role}@"), 1);
    refused(&site, &["move", "file.db", &poor], 78, "needs CREATE on the database");
    moves(&site, "file.db", "state.db");
    refused(&site, &["move", &poor, "new.db"], 78, "connect as shiftboss");
    let mut command = site.program();
    command.args(["move", &server(&site).url(), "/proc/new.db"]);
    let (code, error) = code_and_error(&command.output().unwrap());
    assert!(code == 73 && error.contains("/proc"), "{code} {error}");
    drop(site);
    admin(&format!("DROP ROLE {role}"));
}

/// A disk that is full leaves nothing of the new file, and the queue where it was.
#[test]
fn a_full_disk_leaves_nothing() {
    let site = a_queue();
    moves(&site, "file.db", "state.db");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 8; exec \"$@\"", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_shiftboss")).args(["move", &server(&site).url(), "new.db"]);
    let (code, error) = code_and_error(&shell.current_dir(site.path("")).output().unwrap());
    assert!(code != 0 && error.contains("new.db"), "{code} {error}");
    let names = fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("new.db")).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().contains("shiftboss")), "{left:?}");
    start_on(&site, "state.db").stop();
    moves(&site, "state.db", "new.db");
}

/// Broken off behind the last row: the target is not used; the next move begins anew if the source was not marked yet, and
/// else only ends it.
#[test]
fn a_move_that_was_broken_off_is_ended() {
    let site = a_queue();
    moves(&site, "file.db", "state.db");
    let file = Connection::open(site.path("file.db")).unwrap();
    let number = "SELECT value ->> 'number' FROM documents WHERE name = 'moved'";
    let number: String = file.query_row(number, [], |row| row.get(0)).unwrap();
    let place = site.path("file.db");
    let again = format!(
        "INSERT INTO documents VALUES ('arriving', json_build_object('number', '{number}', 'place', '{}'))",
        place.display()
    );
    server(&site).edit(&again);
    let (code, error) = site.refused(site.serve(&[]));
    assert!(code == 78 && error.contains("was broken off: run the same"), "{code} {error}");
    assert!(moves(&site, "file.db", "state.db").contains("has ended"));
    start_on(&site, "state.db").stop();

    server(&site).edit(&again);
    file.execute("DELETE FROM documents WHERE name = 'moved'", []).unwrap();
    drop(file);
    fs::copy(&place, site.path("other.db")).unwrap();
    refused(&site, &["move", "other.db", "state.db"], 78, "a move into postgres://");
    // As on another machine, where something else is called the same, or when that was made anew in its place.
    start_on(&site, "fresh.db").stop();
    fs::rename(&place, site.path("kept.db")).unwrap();
    fs::rename(site.path("fresh.db"), &place).unwrap();
    refused(&site, &["move", "file.db", "state.db"], 78, "a move into postgres://");
    fs::rename(site.path("kept.db"), &place).unwrap();
    start_on(&site, "file.db").stop();
    moves(&site, "file.db", "state.db");
    assert_eq!(next_keys(&site, "state.db").len(), LISTED.len());
}

/// The same on the way back.
#[test]
fn a_way_back_that_was_broken_off_is_ended() {
    let site = a_queue();
    moves(&site, "file.db", "state.db");
    moves(&site, "state.db", "new.db");
    let number = site
        .sql("SELECT value::json ->> 'number' FROM shiftboss.documents WHERE name = 'moved'")
        .remove(0);
    let url = server(&site).url();
    let mark = |number: &str| {
        let file = Connection::open(site.path("new.db")).unwrap();
        let sql =
            "INSERT INTO documents VALUES ('arriving', json_object('number', ?1, 'place', ?2))";
        file.execute(sql, [number, &url]).unwrap();
    };
    refused(&site, &["move", "state.db", "new.db"], 78, "was moved to /");
    mark(&number);
    refused(&site, &["serve", "new.db", "input", "socket"], 78, "was broken off");
    assert!(moves(&site, "state.db", "new.db").contains("has ended"));
    start_on(&site, "new.db").stop();
    let (_, queue) = number.rsplit_once('@').unwrap();
    mark("another@elsewhere");
    server(&site).edit("DELETE FROM documents WHERE name = 'moved'");
    refused(&site, &["move", "state.db", "new.db"], 78, "a move into /");
    fs::remove_file(site.path("new.db")).unwrap();
    moves(&site, "state.db", "new.db");
    mark(&format!("another@{queue}"));
    server(&site).edit("DELETE FROM documents WHERE name = 'moved'");
    moves(&site, "state.db", "new.db");
    assert_eq!(next_keys(&site, "new.db").len(), LISTED.len());
}

/// Killed, or cut off from the server, at any time: until a move has ended there is one queue that a daemon may use, or the
/// next move ends it.
#[test]
fn a_move_may_be_killed_at_any_time() {
    let site = Site::new();
    site.write("f.1.txt", list_of(10_000));
    let daemon = start_on(&site, "file.db");
    wait_until("the list is read", || counts(&site, "file.db")[0].contains("10000 waiting"));
    daemon.stop();
    for (from, to) in [("file.db", "state.db"), ("state.db", "new.db")] {
        for round in 0.. {
            let mut child = begin(&site, from, to);
            pause(Duration::from_millis(50 + 150 * round));
            if round % 2 == 0 {
                child.kill().unwrap();
            } else {
                server(&site).edit(CUT_OFF);
            }
            // 78: the one before had ended when it was killed.
            if matches!(child.wait().unwrap().code(), Some(0 | 78)) {
                break;
            }
        }
        assert_eq!(counts(&site, to)[0], counts(&site, from)[0]);
        start_on(&site, to).stop();
    }
}

/// The server falls silent under a move, which ends, and can be begun again.
#[test]
fn a_move_gives_up_when_the_server_is_silent() {
    let site = a_queue();
    assert!(site.run(&["migrate"]).status.success());
    let holder = lock(&site, "LOCK TABLE keys; SELECT FROM header");
    let proxy = Proxy::new(&server(&site).url()).unwrap();
    let mut command = site.program();
    command.args(["move", "file.db", &proxy.url]).stderr(Stdio::piped());
    let mover = command.spawn().unwrap();
    wait_until("it waits", || server(&site).holds(WAITS));
    proxy.hold();
    let (code, error) = code_and_error(&mover.wait_with_output().unwrap());
    assert!(code == 69 && error.contains("Run it again"), "{code} {error}");
    proxy.release();
    drop(holder);
    moves(&site, "file.db", "state.db");
    assert_eq!(next_keys(&site, "state.db").len(), LISTED.len());
}

fn begin(site: &Site, from: &str, to: &str) -> Child {
    let url = server(site).url();
    let place = |name: &str| if name == "state.db" { url.clone() } else { name.to_owned() };
    let mut command = site.program();
    command.args(["move", "--daemon-name", "here", &place(from), &place(to)]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
