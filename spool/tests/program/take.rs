//! `take`, and what resolves it: `move`, `release`, `rm`.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::common::wait_until;
use super::{
    GATE, assert_untried, assert_whole, command, done, feed, json, listed, refused, run, shown,
    spool, with,
};

/// An entry that was taken, with a lease or for good, stays taken, despite looks and repairs, until it is resolved in
/// one of three ways.
#[test]
fn it_stays_until_it_is_resolved() {
    let site = with(&["a", "b", "c"]);
    done(&site, &["init", "s", "r"]);
    for name in ["a\n", "b\n"] {
        assert_eq!(done(&site, &["take", "s", "q"]), name);
    }
    assert_eq!(done(&site, &["take", "s", "q", "--lease", "1h"]), "c\n");
    assert_eq!(spool(&site, &["take", "s", "q"]).0, 69);
    assert_eq!(done(&site, &["fsck", "--repair", "s"]), "Nothing is wrong.\n");
    let listing = json(&site, &["list", "--json", "s", "q"]);
    assert_eq!(listing["available"].as_array().unwrap().len(), 0);
    let state = |at: usize| &listing["checked_out"][at]["state"];
    assert_eq!((state(0), state(2)), (&"detached".into(), &"until".into()));
    let table = done(&site, &["list", "--checkouts", "s", "q"]);
    assert!(table.contains("nobody's process, until it is resolved"), "{table}");
    assert_eq!(shown(&site, "a")["metadata"], "m");
    done(&site, &["release", "s", "q", "a"]);
    done(&site, &["move", "s", "q", "b", "r"]);
    done(&site, &["rm", "s", "q", "c"]);
    assert_eq!((listed(&site, "q"), listed(&site, "r")), (vec!["a".into()], vec!["b".into()]));
    assert!(!site.path("s/.data/c").exists());
    // A release does not count, and a second one finds nothing.
    assert_untried(&site, "a");
    refused(&site, &["release", "s", "q", "a"], 65, "shiftspool: a is not checked out of q\n");
    assert_whole(&site);
}

/// Entries that were not taken can be moved and removed as well.
#[test]
fn available_entries() {
    let site = with(&["a", "b"]);
    done(&site, &["init", "s", "r"]);
    done(&site, &["move", "s", "q", "a", "r"]);
    done(&site, &["rm", "s", "q", "b"]);
    assert_eq!(fs::read(site.path("s/r/a")).unwrap(), b"m");
    for words in [&["move", "s", "q", "a", "r"][..], &["rm", "s", "q", "a"]] {
        refused(&site, words, 65, "there is no entry a in q: it is in r");
    }
    refused(&site, &["rm", "s", "q", "b"], 65, "it was taken, moved or removed");
    done(&site, &["move", "s", "r", "a", "r"]);
    assert_whole(&site);
}

/// A wait ends with an entry, or with its time.
#[test]
fn a_wait() {
    let site = with(&[]);
    let start = Instant::now();
    let words = ["take", "s", "q", "--wait", "300ms"];
    refused(&site, &words, 69, "shiftspool: there is nothing to take in q\n");
    assert!(start.elapsed() >= Duration::from_millis(300));
    let mut take = command(&site, &["take", "s", "q", "--wait", "1h"]);
    let take = take.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(feed(&site, &["put", "s", "q", "--name", "late"], b"").0, 0);
    assert_eq!(take.wait_with_output().unwrap().stdout, b"late\n");
}

/// If the printed name was not read, the entry is given back, and the attempt does not count.
#[test]
fn nobody_reads_the_name() {
    let site = with(&[]);
    let mut take = command(&site, &["take", "s", "q", "--wait", "1h"]);
    let mut take = take.stdout(Stdio::piped()).spawn().unwrap();
    drop(take.stdout.take());
    done(&site, &["put", "s", "q", "--name", "a"]);
    assert_eq!(take.wait().unwrap().code(), Some(0));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut take = command(&site, &["take", "s", "q"]);
    let code = take.stdout(full).stderr(Stdio::null()).status().unwrap().code();
    assert_eq!(code, Some(74));
    assert_untried(&site, "a");
    assert_whole(&site);
}

/// An entry that a running process has is not taken from it.
#[test]
fn what_others_work_on() {
    let site = with(&["a"]);
    done(&site, &["init", "s", "r"]);
    let mut child = run(&site, &["--once"], &format!("touch began; {GATE}")).spawn().unwrap();
    wait_until("the command runs", || site.path("began").exists());
    for words in
        [&["rm", "s", "q", "a"][..], &["release", "s", "q", "a"], &["move", "s", "q", "a", "r"]]
    {
        refused(&site, words, 75, "which still works on it");
    }
    fs::write(site.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_whole(&site);
}
