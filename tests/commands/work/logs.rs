//! The files of `--log-dir`.

use std::fs;
use std::path::PathBuf;

use super::{run, start, with_jobs};
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
    let (site, _daemon) = Site::running(&[]);
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

/// Logs that are older than `--keep` go, and nothing else does, which is said.
#[test]
fn old_logs_are_removed() {
    let (site, _daemon) = with_jobs(2, &[]);
    run(&site, &["--once", "--log-dir", "logs"], "true");
    let (old, kept) = (site.path("logs/2020-01-31"), site.path("logs/2020-01-30"));
    fs::rename(today(&site), &old).unwrap();
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("photo.jpg"), "").unwrap();
    let worker = start(&site, &["--log-dir", "logs", "--keep", "7days"], "true");
    wait_until("old logs go", || !old.exists());
    wait_until("it is said", || worker.log().contains("Old logs are removed; other files"));
    worker.stop();
    assert!(kept.join("photo.jpg").exists());
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
    let (site, _daemon) = with_jobs(1, &[]);
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
