//! Orders to many keys: by a selection, or from a file. Which keys a selection has is held in `queue::questions`.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::common::said::{code_and_error, failure, json, said, told};
use crate::common::screen::Screen;
use crate::common::{Client, Daemon, Site, attempt_of, wait_until};

/// A daemon with two lists: f has a0 to a9 and b0, of which a0 failed with 7; g has c0. Two single tasks wait.
fn site() -> (Site, Daemon) {
    let site = Site::new();
    let list: String = (0..10).map(|number| format!("a{number} 1\n")).collect();
    site.write("f.1.txt", list + "b0 1\n");
    let daemon = site.start();
    site.wait_count(11);
    let mut worker = Client::opted_in(&site, "HELLO 2 builder");
    said(&site, &["bump", "a0"]);
    let attempt = attempt_of(&worker.ask("READY"));
    assert_eq!(worker.ask(&format!("DONE {attempt} 7")), "OK\n");
    site.write("g.1.txt", "c0 1\n");
    site.wait_count(12);
    said(&site, &["add", "s0", "x"]);
    said(&site, &["add", "s1", "x"]);
    (site, daemon)
}

/// Each says how many keys it is for, does nothing for a dry run or if nobody can be asked, and goes on with `--yes`.
#[test]
fn an_order_to_many_says_how_many() {
    let (site, _daemon) = site();
    let files = [("held", "a1\na2\r\n\nb0\n"), ("gone", "u1\nu2\n")];
    files.iter().for_each(|(name, text)| std::fs::write(site.path(name), text).unwrap());
    for key in ["a1", "a2", "u1", "u2"] {
        said(&site, &["hold", key]);
    }
    for (order, would, done) in [
        (
            "unhold --prefix u",
            "end the holds of 2 keys",
            "No longer held: 2 keys. What waits of them is at its old place.",
        ),
        (
            "unhold --file held",
            "end the holds of 3 keys",
            "No longer held: 2 keys. What waits of them is at its old place.",
        ),
        ("bump --fetcher f", "bump 11 keys", "Bumped: 11 keys."),
        (
            "cancel --fetcher @tasks --prefix s",
            "delete the single tasks of 2 keys",
            "Deleted 2 single tasks of 2 keys.",
        ),
    ] {
        let order: Vec<&str> = order.split(' ').collect();
        let with = |more: &[&str]| site.run(&[&order, more].concat());
        let dry = String::from_utf8(with(&["--dry-run"]).stdout).unwrap();
        assert!(dry.starts_with(&format!("This would {would}.\n  ")), "{dry}");
        let (code, why) = failure(&with(&[]));
        assert!(
            code == 64 && why.contains(&format!("this would {would}: say so with --yes")),
            "{why}"
        );
        let (code, told, why) = told(&with(&["--yes"]));
        assert_eq!((code, told), (0, format!("{done}\n")), "{why}");
        let again = json(&site, &[&order[..], &["--dry-run"]].concat());
        assert!(order[1] == "--file" || again["keys"] == 0, "{again}");
    }
    assert_eq!(site.status()["bumped"], 11);
}

/// Failed tasks by exit code; those of held keys are left alone. One key needs no question.
#[test]
fn failed_tasks_by_exit_code() {
    let (site, _daemon) = site();
    let first = json(&site, &["retry", "--exit-code", "7", "--dry-run"]);
    assert_eq!(first, json!({"keys": 1, "held": 0, "first": ["a0"]}));
    let none = "Back in the queue: 0 tasks.";
    assert_eq!(said(&site, &["retry", "--exit-code", "8"]), format!("{none}\n"));
    assert_eq!(said(&site, &["retry", "--failed", "--prefix", "b"]), format!("{none}\n"));
    said(&site, &["hold", "a0"]);
    let left = format!("{none} Left alone: 1 held key.\n");
    assert_eq!(said(&site, &["retry", "--failed"]), left);
    said(&site, &["unhold", "a0"]);
    let done = json(&site, &["retry", "--exit-code", "7"]);
    assert_eq!(done, json!({"keys": 1, "tasks": 1, "held": 0, "refused": 0}));
}

/// Keys from standard input, more than one batch of them. What is refused is named with its key, and what is no key with its line.
#[test]
fn keys_from_standard_input() {
    let (site, _daemon) = Site::running(&[]);
    let keys: String = (0..450).map(|number| format!("k{number} 1\n")).collect();
    site.write("f.1.txt", keys);
    site.wait_count(450);
    let give = |arguments: &[&str], text: &str| {
        let mut command = site.program();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let (code, why) = failure(&give(&["bump", "--file", "-"], ""));
    assert!(code == 64 && why.contains("say --yes"), "{why}");
    let all: String = (0..450).map(|number| format!("k{number}\n")).collect();
    let (code, done, why) = told(&give(&["bump", "--file", "-", "--yes"], &all));
    assert_eq!((code, &*done), (0, "Bumped: 450 keys.\n"), "{why}");
    let faulty = format!("k1\nnobody\ntwo words\n{}", "gone\n".repeat(20));
    let (code, done, why) = told(&give(&["retry", "--file", "-", "--yes"], &faulty));
    assert_eq!((code, &*done), (65, "Back in the queue: 0 tasks.\n"), "{why}");
    for line in [
        "shiftboss: nobody: no fetcher lists that key",
        "standard input: line 3 is no key",
        "21 keys were refused",
    ] {
        assert!(why.contains(line), "{line}: {why}");
    }
    site.remove("f.1.txt");
    wait_until("its keys are unlisted", || site.status()["unlisted_keys"] == 450);
    let done = said(&site, &["forget", "--prefix", "k", "--yes"]);
    assert_eq!(done, "Forgotten: 450 keys.\n");
}

/// A full lane ends it, and what was done before is said.
#[test]
fn more_than_there_may_be() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", (0..1_001).map(|number| format!("k{number} 1\n")).collect::<String>());
    site.wait_count(1_001);
    let (code, why) = failure(&site.run(&["bump", "--prefix", "k", "--yes"]));
    assert!(code == 75 && why.contains("as many bumped keys as may be (1000)"), "{code} {why}");
    assert!(why.ends_with("Bumped: 1000 keys.\n"), "{why}");
}

/// On a terminal it asks, and takes silence for a no.
#[test]
fn on_a_terminal_it_asks() {
    let (site, _daemon) = site();
    for (answer, expected, bumped) in
        [("\r", "Nothing was changed.", 0), ("y\r", "Bumped: 11 keys.", 11)]
    {
        let mut command = site.program();
        command.args(["bump", "--fetcher", "f"]);
        let mut screen = Screen::start(command, (80, 24));
        wait_until("it asks", || {
            screen.written().contains("This will bump 11 keys. Go on? [y/N] ")
        });
        screen.press(answer);
        wait_until("it is answered", || screen.written().contains(expected));
        assert_eq!(site.status()["bumped"], bumped);
    }
}

/// A mistyped fetcher is no fetcher without keys; nor may a selection stand beside keys.
#[test]
fn what_is_no_selection() {
    let (site, _daemon) = site();
    let wrong = "no list of a fetcher ff is here, or ever was";
    for order in ["tasks", "retry --failed", "forget"] {
        let order: Vec<&str> = order.split(' ').collect();
        let (code, why) = failure(&site.run(&[&order[..], &["--fetcher", "ff"]].concat()));
        assert!(code == 65 && why.contains(wrong), "{order:?}: {why}");
    }
    for wrong in [
        "cancel",
        "cancel a --prefix b",
        "bump --file x --fetcher f",
        "retry --since 1h",
        "forget a --dry-run",
    ] {
        let wrong: Vec<&str> = wrong.split(' ').collect();
        assert_eq!(code_and_error(&site.run(&wrong)).0, 64, "{wrong:?}");
    }
}
