//! `monitor` and `fsck`: what they say, and with which exit code.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::common::{Site, wait_until};
use super::{command, done, spool, stop, with};

/// The code and the report of a verb in JSON.
fn report(site: &Site, words: &[&str]) -> (i32, serde_json::Value) {
    let (code, stdout, _) = spool(site, words);
    (code, serde_json::from_str(&stdout).unwrap())
}

/// A healthy spool ends with 0, an orphan with 1, in words and as JSON.
#[test]
fn the_monitor() {
    let site = with(&["a"]);
    assert_eq!(done(&site, &["monitor", "s"]), "No problem.\n");
    fs::write(site.path("s/.registry/orphan\n"), "").unwrap();
    let (code, stdout, stderr) = spool(&site, &["monitor", "s"]);
    assert_eq!((code, &*stderr), (1, ""));
    assert!(stdout.starts_with("orphaned: .registry/orphan\\x0a (touched 20"), "{stdout}");
    let (code, found) = report(&site, &["monitor", "--json", "s"]);
    assert_eq!((code, &found["problems"][0]["kind"]), (1, &"orphaned".into()));
    fs::remove_file(site.path("s/.registry/orphan\n")).unwrap();
    let (code, found) = report(&site, &["monitor", "--max-age", "q=0s", "--json", "s"]);
    assert_eq!((code, &found["problems"][0]["places"][0]["queue"]), (1, &"q".into()));
    done(&site, &["take", "s", "q"]);
    assert_eq!(spool(&site, &["monitor", "--max-checkout-age", "0s", "s"]).0, 1);
    assert_eq!(spool(&site, &["monitor", "s"]).0, 0);
}

/// The daemon reports beginnings and ends, and exits with 1 if there were any.
#[test]
fn the_daemon() {
    let site = with(&["a"]);
    let mut daemon = command(&site, &["monitor", "--daemon", "--every", "10ms", "--json", "s"]);
    let mut daemon = daemon.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    fs::write(site.path("s/q/stray"), "").unwrap();
    let mut event =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let begins = event();
    assert_eq!((&begins["event"], &begins["problem"]["name"]), (&"start".into(), &"stray".into()));
    fs::remove_file(site.path("s/q/stray")).unwrap();
    assert_eq!(event()["event"], "end");
    // A look that fails is logged, and the next is made all the same.
    let break_it = || {
        fs::rename(site.path("s/.data"), site.path("s/gone")).unwrap();
        fs::write(site.path("s/.data"), "").unwrap();
    };
    break_it();
    assert!(log.next().unwrap().unwrap().contains("A look failed"));
    fs::remove_file(site.path("s/.data")).unwrap();
    fs::rename(site.path("s/gone"), site.path("s/.data")).unwrap();
    fs::write(site.path("s/q/stray"), "").unwrap();
    assert_eq!(event()["event"], "start");
    assert_eq!(stop(daemon), 1);
    // A daemon that saw nothing exits with 0, and one that could not look with 1.
    for (every, is_broken) in [("1h", false), ("10ms", true)] {
        let words = ["monitor", "--daemon", "--every", every, "s"];
        let mut daemon = command(&site, &words).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(daemon.stderr.take().unwrap()).lines();
        let status = format!("/proc/{}/status", daemon.id());
        let catches_term = || {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
            caught.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap() & (1 << 14) != 0)
        };
        wait_until("it listens", catches_term);
        if is_broken {
            break_it();
            assert!(log.next().unwrap().unwrap().contains("A look failed"));
        }
        assert_eq!(stop(daemon), i32::from(is_broken));
    }
}

/// A check reports what is wrong and exits with 1; so does the repair; the next check exits with 0.
#[test]
fn the_repair() {
    let site = with(&["a", "b"]);
    fs::rename(site.path("s/q/a"), site.path("s/q/.checkout/a")).unwrap();
    fs::remove_file(site.path("s/.data/b")).unwrap();
    fs::write(site.path("s/.tmp/half"), "").unwrap();
    let (code, stdout, _) = spool(&site, &["fsck", "s"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("q/.checkout/a: checked out, and nobody noted it: to be given back"));
    assert!(stdout.ends_with("3 found; --repair mends them.\n"), "{stdout}");
    let (code, stdout, _) = spool(&site, &["fsck", "--repair", "--older-than", "1h", "s"]);
    assert_eq!((code, &*stdout), (0, "Nothing is wrong.\n"));
    let (code, fsck) = report(&site, &["fsck", "--repair", "--json", "s"]);
    let findings = fsck["findings"].as_array().unwrap();
    assert_eq!((code, findings.len()), (1, 3));
    assert!(findings.iter().all(|found| found["mended"] == true));
    let (code, stdout, _) = spool(&site, &["fsck", "s"]);
    assert_eq!((code, &*stdout), (0, "Nothing is wrong.\nquarantined: .shiftboss/quarantine/b\n"));
    assert!(done(&site, &["list", "s"]).ends_with("1 in .shiftboss/quarantine\n"));
    assert_eq!(super::listed(&site, "q"), ["a"]);
}
