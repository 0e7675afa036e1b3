//! `run --log-dir`: a file for each entry and day, as with `work`.

use std::fs;

use super::common::Site;
use super::{assert_whole, feed, lines, ran, refused, with};

/// The text of a log of the one day there is.
fn log(site: &Site, name: &str) -> String {
    let days: Vec<_> =
        fs::read_dir(site.path("logs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(days.len(), 1, "{days:?}");
    fs::read_to_string(days[0].join(name)).unwrap()
}

/// What was run, as which attempt, what it wrote, how it ended; nothing on standard output.
#[test]
fn a_file_for_each_entry() {
    let site = with(&["a", "b"]);
    assert_eq!(feed(&site, &["put", "s", "q", "--name=\\xff"], b"").0, 0);
    let words = ["--once", "--log-dir", "logs", "--retry-after", "0s", "--attempts", "2"];
    let script = "echo one; printf two >&2; [ $SHIFTSPOOL_NAME != b ] || kill -9 $$";
    let (code, stdout, stderr) = ran(&site, &words, script);
    assert_eq!((code, &*stdout), (1, ""), "{stderr}");
    assert_eq!(ran(&site, &words, script).0, 1);
    let text = log(&site, "a.log");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].contains("Z attempt 1 of a: sh -c echo one; "), "{text}");
    assert_eq!(lines[1..3], ["one", "two"]);
    assert!(lines[3].contains("Z exit code 0, after 0."), "{text}");
    let text = log(&site, "b.log");
    assert_eq!(text.matches("signal 9, exit code 137, after").count(), 2, "{text}");
    assert!(text.contains("attempt 2 of b"), "{text}");
    assert!(log(&site, "%FF.log").contains("exit code 0"));
    assert_whole(&site);
}

/// A directory that cannot be made is reported before anything is taken; a log that cannot be made does not fail its
/// entry.
#[test]
fn logs_that_cannot_be_made() {
    let site = with(&["a"]);
    fs::write(site.path("file"), "").unwrap();
    let (code, _, stderr) = ran(&site, &["--once", "--log-dir", "file"], "echo >> did");
    assert!(code == 73 && stderr.contains("cannot make the directory /"), "{stderr}");
    assert!(stderr.contains("/file: "), "{stderr}");
    assert_eq!(super::listed(&site, "q"), ["a"]);
    assert_eq!(ran(&site, &["--once", "--log-dir", "logs"], "true").0, 0);
    let day = fs::read_dir(site.path("logs")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(day.join("a.log")).unwrap();
    fs::create_dir(day.join("a.log")).unwrap();
    super::done(&site, &["put", "s", "q", "--name", "a"]);
    let (code, _, stderr) = ran(&site, &["--once", "--log-dir", "logs"], "echo said; echo >> did");
    assert_eq!(code, 0);
    assert!(stderr.contains("A job runs without a log."), "{stderr}");
    assert_eq!(lines(&site, "did").len(), 1);
    refused(&site, &["run", "--keep", "1day", "s", "q", "--", "true"], 64, "");
}
