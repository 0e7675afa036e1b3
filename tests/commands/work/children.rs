//! What commands may do to their worker, and what they leave behind: nothing.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use super::{ATTEMPTS, lines, start, wait_gone, wait_lines, work_script, write_jobs};
use crate::common::{Daemon, Site, wait_equal, wait_until};

/// 100 MB without a line end go through in little memory.
#[test]
fn a_flood_without_a_line_end() {
    let site = Site::new();
    let _daemon = site.start();
    write_jobs(&site, 1);
    let script =
        "head -c 100000000 /dev/zero | tr '\\0' x; echo; until [ -e go ]; do sleep .01; done";
    let mut work = work_script(&site, &["--once"], script);
    let mut worker = work.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = worker.stdout.take().unwrap();
    let (mut total, mut letters) = (0, 0);
    let mut bytes = vec![0; 65_536];
    while letters < 100_000_000 {
        let length = out.read(&mut bytes).unwrap();
        total += length;
        letters += bytes[..length].iter().filter(|byte| **byte == b'x').count();
        if length == 0 {
            break;
        }
    }
    let status = fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = peak.split_whitespace().next().unwrap().parse().unwrap();
    eprintln!("peak {peak} KiB, {total} bytes");
    assert!(peak < 64 * 1024, "{peak} KiB");
    super::touch(&site, "go");
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(letters, 100_000_000);
}

/// A reader that is gone is no reason to do no jobs.
#[test]
fn a_reader_that_is_gone_costs_no_job() {
    let site = Site::new();
    let _daemon = site.start();
    write_jobs(&site, 5);
    let mut work = work_script(&site, &["--once"], "head -c 300000 /dev/zero");
    let mut worker = work.stdout(Stdio::piped()).spawn().unwrap();
    drop(worker.stdout.take());
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(site.sql(ATTEMPTS).len(), 5);
}

fn descriptors(worker: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", worker.pid().as_raw_pid())).unwrap().count()
}

/// States of the worker's children.
fn children(worker: &Daemon) -> Vec<String> {
    let pid = worker.pid().as_raw_pid();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let pids = fs::read_to_string(path).unwrap_or_default();
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    pids.split_whitespace().map(stat).collect()
}

/// After 200 jobs there is no zombie, and no descriptor more than after 10.
#[test]
fn nothing_piles_up() {
    for options in [&["-n", "3"][..], &["-n", "3", "--log-dir", "logs"]] {
        let site = Site::new();
        let _daemon = site.start();
        write_jobs(&site, 10);
        let worker = start(&site, options, "sleep 0 & echo said; echo >> ran");
        let settled = |count: usize| {
            wait_equal("all are reported", &(count as i64), || {
                site.number("SELECT count(*) FROM ended WHERE exit_code IS NOT NULL")
            });
            // The guardian alone.
            wait_until("the commands are gone", || children(&worker).len() == 1);
            descriptors(&worker)
        };
        let before = settled(10);
        let more: String = (0..200).map(|number| format!("m{number} p\n")).collect();
        site.write("g.1.txt", more);
        wait_lines(&site, "ran", 210);
        assert!(settled(210) <= before, "descriptors: {before} before");
        assert!(!children(&worker)[0].contains(") Z "));
        worker.stop();
    }
}

/// `kill -9` of the worker takes its commands along, those too that they started.
#[test]
fn no_command_outlives_its_worker() {
    let site = Site::new();
    let daemon = site.start();
    write_jobs(&site, 3);
    let script = "trap '' TERM HUP; sleep 1000 & echo $! >> pids; echo $$ >> pids; wait; wait";
    let worker = start(&site, &["-n", "3", "--lease", "1s"], script);
    wait_lines(&site, "pids", 6);
    worker.kill();
    let killed = std::time::Instant::now();
    wait_gone(&site, "pids");
    // And their jobs come again when the lease ends.
    let (code, ..) = super::run(&site, &["--max-jobs", "3", "-n", "3"], "echo >> ran");
    assert_eq!(code, Some(0));
    assert_eq!(lines(&site, "ran").len(), 3);
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    drop(daemon);
}
