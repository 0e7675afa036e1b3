//! The files of `--log-dir`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{run, start, write_jobs};
use crate::common::{Site, wait_until};

/// The one day's directory.
fn today(site: &Site) -> PathBuf {
    let days: Vec<_> =
        fs::read_dir(site.path("logs")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(days.len(), 1, "{days:?}");
    days[0].clone()
}

/// A file says what was run, when, what that wrote, and how it ended; the next run goes behind it.
#[test]
fn a_file_for_each_key() {
    let site = Site::new();
    let _daemon = site.start();
    for run_number in 1..=2 {
        site.write(format!("f.{run_number}.txt"), "alpha p\nb/c p\n");
        let script = "echo one; printf two >&2; exit 3";
        let (code, out, log) = run(&site, &["--once", "--log-dir", "logs"], script);
        assert_eq!((code, &*out), (Some(0), ""), "{log}");
    }
    let day = today(&site);
    let text = fs::read_to_string(day.join("alpha.log")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let date = day.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(lines.len(), 8, "{text}");
    for job in lines.chunks(4) {
        assert!(job[0].starts_with(&format!("=== {date}T")), "{text}");
        assert!(job[0].contains(" of alpha: sh -c echo one; "), "{text}");
        assert_eq!(job[1..3], ["one", "two"]);
        assert!(job[3].contains("Z exit code 3, after 0."), "{text}");
    }
    assert!(day.join("b%2Fc.log").exists());
}

/// A key of 4 KiB with strange bytes has a log of its own.
#[test]
fn a_strange_key() {
    let site = Site::new();
    let _daemon = site.start();
    let key = |last: char| format!("../é\u{7f}{}{last}", "/".repeat(4_000));
    site.write("f.1.txt", format!("{} p\n{} p\n.. p\n", key('a'), key('b')));
    let (code, _, log) = run(&site, &["--once", "--log-dir", "logs"], "echo said");
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("without a log"), "{log}");
    let names: Vec<String> = fs::read_dir(today(&site))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.iter().filter(|name| name.ends_with(".log")).count(), 3, "{names:?}");
    assert!(names.iter().all(|name| name.len() <= 227 && name.starts_with("%2E.")), "{names:?}");
}

/// Logs that are older than `--keep` go, and nothing else does, whatever lies beside them; that is said once.
#[test]
fn old_logs_are_removed() {
    let site = Site::new();
    let _daemon = site.start();
    write_jobs(&site, 2);
    run(&site, &["--once", "--log-dir", "logs"], "true");
    let written = today(&site);
    let logs = |day: &str| site.path("logs").join(day);
    fs::create_dir(logs("2020-01-31")).unwrap();
    for name in ["k0.log", "k0.log.index", "k1.log"] {
        fs::copy(written.join(name), logs("2020-01-31").join(name)).unwrap();
    }
    for day in ["2020-01-30", "2020-02-30", "mine", "2999-01-01"] {
        copy_all(&written, &logs(day));
    }
    fs::write(logs("2020-01-31").join("photo.jpg"), "").unwrap();
    fs::write(logs("2020-01-31").join("k3.log"), "somebody else's\n").unwrap();
    fs::create_dir(logs("2020-01-31").join("sub")).unwrap();
    fs::write(logs("2020-01-01"), "a file").unwrap();
    let worker = start(&site, &["--log-dir", "logs", "--keep", "7days"], "true");
    let names = |day: &str| {
        let names = fs::read_dir(logs(day)).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    wait_until("old logs go", || {
        !logs("2020-01-30").exists() && names("2020-01-31") == ["k3.log", "photo.jpg", "sub"]
    });
    wait_until("it is said", || worker.log().contains("Old logs are removed; other files"));
    worker.stop();
    for kept in ["2020-02-30", "mine", "2999-01-01"] {
        assert_eq!(names(kept).len(), 4, "{kept}");
    }
    assert!(logs("2020-01-01").exists());
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Logs that cannot be made are told before anything is taken.
#[test]
fn a_directory_that_cannot_be_made() {
    let site = Site::new();
    fs::write(site.path("logs"), "").unwrap();
    let (code, _, log) = run(&site, &["--once", "--log-dir", "logs"], "true");
    assert_eq!(code, Some(73), "{log}");
    assert!(log.contains("cannot make the directory"), "{log}");
}

/// A log that cannot be written costs the log, not the job.
#[test]
fn a_log_that_cannot_be_made() {
    let site = Site::new();
    let _daemon = site.start();
    write_jobs(&site, 1);
    run(&site, &["--once", "--log-dir", "logs"], "echo >> ran");
    let file = today(&site).join("k0.log");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    site.write("f.2.txt", "k0 p\n");
    let (code, _, log) = run(&site, &["--once", "--log-dir", "logs"], "echo said; echo >> ran");
    assert_eq!(code, Some(0));
    assert!(log.contains("A job runs without a log."), "{log}");
    assert_eq!(super::lines(&site, "ran").len(), 2);
}
