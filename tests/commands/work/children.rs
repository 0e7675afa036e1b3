//! What commands may do to their worker, and what they leave behind: nothing.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{ATTEMPTS, lines, start, wait_gone, wait_lines, with_jobs, work_script};
use crate::common::left::wait_ended;
use crate::common::{Daemon, wait_equal, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// 100 MB without a line end go through in little memory.
#[test]
fn a_flood_without_a_line_end() {
    let (site, _daemon) = with_jobs(1, &[]);
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
    let (site, _daemon) = with_jobs(5, &[]);
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
        let (site, _daemon) = with_jobs(10, &[]);
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
    let (site, daemon) = with_jobs(3, &[]);
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

/// Signals that a worker was started with ignored are not ignored by a command.
#[test]
fn signals_are_as_usual() {
    let (site, _daemon) = with_jobs(1, &[]);
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status > masks";
    let work = work_script(&site, &["--once"], script);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT QUIT USR1 PIPE; exec \"$@\"", "sh"]);
    shell.arg(work.get_program()).args(work.get_args()).current_dir(site.path(""));
    assert!(shell.status().unwrap().success());
    let said = fs::read_to_string(site.path("masks")).unwrap();
    let masks = said.split_whitespace().filter(|word| !word.ends_with(':'));
    // The first 31 are the standard signals; those after them are the C library's and programs' own.
    let standard = masks.map(|mask| u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff);
    assert_eq!(standard.collect::<Vec<_>>(), [0; 2]);
}

/// What watches over the worker's commands; one that has ended has no command line.
fn guardian(worker: &Daemon) -> Option<Pid> {
    let children = children(worker);
    let mut pids = children.iter().filter_map(|stat| stat.split(' ').next()?.parse().ok());
    let line = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.find(|pid| line(pid).ends_with(b"\0guardian\0")).and_then(Pid::from_raw)
}

/// What ends others does not end a guardian. One that is killed is replaced, and its successor knows what runs: that goes with the
/// worker, and so does the guardian.
#[test]
fn a_killed_guardian_is_replaced() {
    let (site, _daemon) = with_jobs(2, &[]);
    let script = "trap '' TERM HUP; sleep 1000 & echo $! >> pids; echo $$ >> pids; wait; wait";
    let worker = start(&site, &["-n", "2"], script);
    wait_lines(&site, "pids", 4);
    let first = guardian(&worker).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(first, signal).unwrap();
    }
    kill_process(first, Signal::KILL).unwrap();
    let mut second = first;
    let is_reaped = || !children(&worker).iter().any(|stat| stat.starts_with(&format!("{first} ")));
    wait_until("there is another guardian, and the first one is reaped", || {
        second = guardian(&worker).unwrap_or(first);
        second != first && is_reaped()
    });
    worker.kill();
    wait_gone(&site, "pids");
    wait_ended(second);
}
