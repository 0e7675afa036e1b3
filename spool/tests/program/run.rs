//! `run`: what a command gets, and what happens to its entry, depending on how it ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use rustix::process::Signal;

use super::common::wait::pause_before_second_signal;
use super::common::wait_until;
use super::{
    GATE, assert_untried, assert_whole, command, done, feed, json, lines, listed, ran, refused,
    run, signal, spool, stop, wait_gone, wait_lines, with,
};

/// Name, metadata and data reach the command, in its arguments and its environment.
#[test]
fn what_a_command_is_given() {
    let site = with(&["a b"]);
    let script = "echo \"$0|$1|$(cat \"$2\")|$SHIFTSPOOL_NAME|$SHIFTSPOOL_META\"; \
        [ \"$3\" = \"$SHIFTSPOOL_ID\" ] && cat \"$4\" \"$SHIFTSPOOL_DATA\"; \
        echo \"|$SHIFTSPOOL_QUEUE|$SHIFTSPOOL_ATTEMPT|$SHIFTSPOOL_DIR\" >&2";
    let places = ["{name}", "x{meta}", "{data}", "{id}", "{meta_file}"];
    let words = ["run", "--once", "s", "q", "--", "sh", "-c", script];
    let (code, stdout, _) = spool(&site, &[&words[..], &places].concat());
    assert_eq!(code, 0);
    let dir = site.path("s").display().to_string();
    // Both outputs are one, in the order in which they were written.
    let expected = format!("a b: a b|xm|data|a b|m\na b: mdata|q|1|{dir}\n");
    assert_eq!(stdout, expected);
    assert_eq!(listed(&site, "q"), [""; 0]);
    assert_whole(&site);
}

/// An entry whose data is a planted link is not given to a command, and `show` says why.
#[test]
fn planted_data_is_not_followed() {
    let site = with(&["a", "b"]);
    fs::write(site.path("secret"), "secret").unwrap();
    fs::remove_file(site.path("s/.data/b")).unwrap();
    symlink(site.path("secret"), site.path("s/.data/b")).unwrap();
    let words = ["run", "--once", "s", "q", "--", "cat", "{data}"];
    let (code, stdout, stderr) = spool(&site, &words);
    assert_eq!((code, &*stdout), (1, "a: data\n"), "{stderr}");
    assert_eq!(listed(&site, "dead-letter"), ["b"]);
    assert!(done(&site, &["show", "s", "dead-letter", "b"]).contains("symbolic link"));
}

/// Names and metadata of any bytes reach the command unchanged; an entry with which that is impossible fails alone.
#[test]
fn strange_entries() {
    let site = with(&[]);
    assert_eq!(feed(&site, &["put", "s", "q", "--name=\\xff\\x0a"], b"").0, 0);
    let (code, stdout, _) = ran(&site, &["--once"], "printf %s \"$SHIFTSPOOL_NAME\" > name");
    assert_eq!((code, &*stdout), (0, ""));
    assert_eq!(fs::read(site.path("name")).unwrap(), b"\xff\n");
    // Metadata that no environment can hold is in its file; as an argument it is a failure.
    for metadata in [vec![b'x'; 200_000], b"a\0b".to_vec()] {
        done(&site, &["put", "s", "q", "--name", "big"]);
        fs::write(site.path("s/q/big"), &metadata).unwrap();
        let words = ["run", "--once", "--failed", "bad", "s", "q", "--", "echo", "{meta}"];
        assert_eq!(spool(&site, &words).0, 1);
        assert_eq!(listed(&site, "bad"), ["big"]);
        done(&site, &["move", "s", "bad", "big", "q"]);
        let script = "test -z \"${SHIFTSPOOL_META+x}\" && cp \"$SHIFTSPOOL_META_FILE\" copy";
        assert_eq!(ran(&site, &["--once", "--failed", "bad"], script).0, 0);
        assert_eq!(fs::read(site.path("copy")).unwrap(), metadata);
    }
    assert_eq!(listed(&site, "bad"), [""; 0]);
    assert_whole(&site);
}

/// An exit code, a signal and a time limit are failures, and go to `--failed` at once.
#[test]
fn failures_are_set_apart() {
    let site = with(&["code", "killed", "slow", "well"]);
    let script = "case $SHIFTSPOOL_NAME in code) exit 3;; killed) kill -9 $$;; \
        slow) echo $$ > pids; sleep 1000;; esac";
    let words = ["--once", "-n", "4", "--timeout", "300ms", "--failed", "bad"];
    let (code, _, stderr) = ran(&site, &words, script);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.ends_with("shiftspool: entries that failed: 3; see above\n"), "{stderr}");
    assert_eq!(listed(&site, "bad"), ["code", "killed", "slow"]);
    assert_eq!(listed(&site, "q"), [""; 0]);
    for code in ["code=3", "code=137", "code=124"] {
        assert!(stderr.contains(code), "{code}: {stderr}");
    }
    wait_gone(&site, "pids");
    assert_whole(&site);
}

/// Without `--failed` an entry is tried again after a rest, and goes to the dead letters at last. A service that is
/// asked to stop has not failed, whatever happened to its entries.
#[test]
fn failures_are_tried_again() {
    let site = with(&["a"]);
    let words = ["--retry-after", "0s", "--attempts", "3"];
    let child = run(&site, &words, "echo $SHIFTSPOOL_ATTEMPT >> attempts; exit 1").spawn().unwrap();
    wait_until("it is a dead letter", || listed(&site, "dead-letter") == ["a"]);
    let why = "attempt 3 failed with exit code 1, and was the last one";
    assert!(done(&site, &["show", "s", "dead-letter", "a"]).contains(why));
    assert_eq!(stop(child), 0);
    assert_eq!(lines(&site, "attempts"), ["1", "2", "3"]);
    // While it rests no process has it; it can be given back by hand.
    done(&site, &["move", "s", "dead-letter", "a", "q"]);
    assert_eq!(ran(&site, &["--once", "--retry-after", "1h"], "exit 1").0, 1);
    assert_eq!(json(&site, &["list", "--json", "s", "q"])["checked_out"][0]["state"], "until");
    assert_eq!(spool(&site, &["take", "s", "q"]).0, 69);
    done(&site, &["release", "s", "q", "a"]);
    assert_eq!(listed(&site, "q"), ["a"]);
}

/// An empty queue: `--once` leaves at once, without it an arrival is worked on.
#[test]
fn an_empty_queue() {
    let site = with(&[]);
    assert_eq!(ran(&site, &["--once"], "touch began"), (0, String::new(), String::new()));
    let mut child = run(&site, &[], "echo $SHIFTSPOOL_NAME >> did").spawn().unwrap();
    for name in ["a", "b"] {
        done(&site, &["put", "s", "q", "--name", name]);
    }
    wait_lines(&site, "did", 2);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(lines(&site, "did"), ["a", "b"]);
    assert_whole(&site);
}

/// At most N at a time, and N if there are that many.
#[test]
fn so_many_at_a_time() {
    let site = with(&["a", "b", "c", "d", "e"]);
    let script = format!("echo x >> began; {GATE}");
    let mut child = run(&site, &["--once", "-n", "3"], &script).spawn().unwrap();
    wait_lines(&site, "began", 3);
    assert_eq!(listed(&site, "q"), ["d", "e"]);
    fs::write(site.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(lines(&site, "began").len(), 5);
    assert_whole(&site);
}

/// A program that cannot be run does not fail an entry, and is reported.
#[test]
fn no_such_program() {
    let site = with(&["a"]);
    for program in ["/nowhere/program", "/etc/passwd"] {
        let words = ["run", "--failed", "bad", "s", "q", "--", program];
        refused(&site, &words, 78, &format!("cannot run {program}"));
        assert_untried(&site, "a");
    }
    assert_whole(&site);
}

/// An ID is one word, the same at each attempt; a later entry of the same name has another.
#[test]
fn an_entry_keeps_its_id() {
    let site = with(&["a b"]);
    let script = "echo $SHIFTSPOOL_ID >> ids; [ $SHIFTSPOOL_ATTEMPT -gt 2 ]";
    for _ in 0..3 {
        ran(&site, &["--once", "--retry-after", "0s"], script);
    }
    assert_eq!(listed(&site, "q"), [""; 0]);
    done(&site, &["put", "s", "q", "--name", "a b", "--meta", "m"]);
    ran(&site, &["--once", "--retry-after", "0s"], script);
    let ids = fs::read_to_string(site.path("ids")).unwrap();
    let ids: Vec<&str> = ids.lines().collect();
    assert!(ids.len() == 4 && ids[0] == ids[2] && ids[0] != ids[3], "{ids:?}");
    assert!(!ids[0].contains(' ') && ids[0].len() < 100, "{ids:?}");
}

/// A command that says "later" costs no attempt: `run` waits, or gives up with `--once`.
#[test]
fn deferred_entries() {
    let site = with(&["a"]);
    let words = ["--defer", "69,75", "--failed", "bad"];
    let script = "[ -e go ] || exit 75; echo $SHIFTSPOOL_ATTEMPT > did";
    let (code, _, stderr) = ran(&site, &[&["--once"], &words[..]].concat(), script);
    assert_eq!(code, 75, "{stderr}");
    assert!(stderr.contains("exit code 75, which means later") && stderr.contains("pause=2s"));
    // A slot that finds nothing to take meanwhile ends alone.
    let (code, _, stderr) = ran(&site, &[&["--once", "-n", "2"], &words[..]].concat(), script);
    assert_eq!(code, 75, "{stderr}");
    let child = run(&site, &words, script).spawn().unwrap();
    fs::write(site.path("go"), "").unwrap();
    wait_lines(&site, "did", 1);
    assert_eq!(stop(child), 0);
    assert_eq!((lines(&site, "did"), listed(&site, "bad").len()), (vec!["1".to_owned()], 0));
    assert_whole(&site);
}

/// A program that vanishes does not fail an entry: `run` waits for it, or gives up with `--once`.
#[test]
fn a_program_that_vanishes() {
    let site = with(&["a", "b"]);
    let program = site.path("program");
    fs::write(&program, "#!/bin/sh\necho >> did\nmv program gone 2>&-\n:\n").unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let words =
        |once| [&["run"][..], once, &["--failed", "bad", "s", "q", "--", "./program"]].concat();
    let (code, _, stderr) = spool(&site, &words(&["--once"]));
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("cannot run ./program") && stderr.contains("pause=2s"), "{stderr}");
    let mut child = command(&site, &words(&[]));
    fs::rename(site.path("gone"), &program).unwrap();
    done(&site, &["put", "s", "q", "--name", "c"]);
    let child = child.stderr(Stdio::null()).spawn().unwrap();
    wait_until("it has gone again", || site.path("gone").exists());
    fs::rename(site.path("gone"), &program).unwrap();
    wait_lines(&site, "did", 3);
    assert_eq!(stop(child), 0);
    assert_eq!((listed(&site, "q").len(), listed(&site, "bad").len()), (0, 0));
    assert_whole(&site);
}

/// A signal lets running commands finish; a second one kills them and gives their entries back, untried.
#[test]
fn signals() {
    let site = with(&["a", "b"]);
    let script = format!("echo $$ >> pids; {GATE}");
    let begun = |pids| {
        let mut child = run(&site, &[], &script).spawn().unwrap();
        wait_lines(&site, "pids", pids);
        signal(&child, Signal::TERM);
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = log.next().unwrap().unwrap();
        assert!(line.contains("finishing what runs"), "{line}");
        (child, log)
    };
    let (mut child, _log) = begun(1);
    fs::write(site.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(listed(&site, "q"), ["b"]);
    fs::remove_file(site.path("go")).unwrap();
    let (mut child, _log) = begun(2);
    signal(&child, Signal::TERM);
    pause_before_second_signal();
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_gone(&site, "pids");
    assert_untried(&site, "b");
    assert_whole(&site);
}
