//! Starting, stopping, signals, and the limits of the process.

use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::common::sql::editor;
use crate::common::wait::{SetOnDrop, pause_before_second_signal};
use crate::common::{Client, Daemon, Site, list_of, wait_until};
use rustix::process::Signal;

/// SIGTERM and SIGINT under load: what was accepted is finished, the exit code is 0 within
/// five seconds, the socket is gone, and everything acknowledged is in the database.
#[test]
fn a_clean_stop_under_load() {
    for signal in [Signal::TERM, Signal::INT] {
        let (site, mut daemon) = Site::serving(&list_of(4_000), &[]);
        let over = AtomicBool::new(false);
        let acknowledged: Vec<String> = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| work_until_closed(&site, &over))).collect();
            let at_end = SetOnDrop(&over);
            wait_until("work is being done", || site.number("SELECT count(*) FROM log") > 200);
            daemon.signal(signal);
            let status = daemon.exit_within(Duration::from_secs(5));
            assert_eq!(status.code(), Some(0), "{}", daemon.log());
            drop(at_end);
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert!(!site.socket().exists());
        assert!(acknowledged.len() > 10);
        let finished = site.sql("SELECT attr_path FROM log WHERE exit_code = 7");
        let finished: std::collections::HashSet<String> = finished.into_iter().collect();
        assert!(acknowledged.iter().all(|key| finished.contains(key)));
    }
}

/// Works until the daemon closes or cannot be reached; returns the keys whose DONE was
/// answered.
fn work_until_closed(site: &Site, over: &AtomicBool) -> Vec<String> {
    let mut done = Vec::new();
    let mut held: Option<String> = None;
    while !over.load(Relaxed) {
        let Ok(stream) = UnixStream::connect(site.socket()) else { break };
        let mut client = Client::over(stream);
        let request = held.as_ref().map_or("READY".to_owned(), |key| format!("DONE {key} 7"));
        let answer = client.ask(&request);
        if answer.ends_with('\n') {
            done.extend(held.take());
            held = crate::common::worker::key_of(&answer);
        }
    }
    done
}

/// A clean stop while very many lines are being loaded; the next start goes on with them.
#[test]
fn a_clean_stop_while_loading() {
    const LINES: usize = 60_000;
    let site = Site::new();
    site.write("f.1.txt", list_of(LINES));
    let daemon = site.start();
    wait_until("rows are coming in", || site.number("SELECT count(*) FROM queue") > 0);
    daemon.stop();
    let loaded = site.number("SELECT count(*) FROM queue");
    assert!(loaded < LINES as i64, "loaded before it could be stopped");
    let _daemon = site.start();
    assert!(site.number("SELECT count(*) FROM queue") >= loaded);
    site.wait_count(LINES);
}

mod sqlite {
    use super::*;

    /// A second signal ends a daemon that is held up in its stop, at once.
    #[test]
    fn a_second_signal_ends_at_once() {
        let (site, mut daemon) = Site::serving(&list_of(10), &[]);
        let lock = editor(&site.database()).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut client = Client::connect(&site);
        client.write(b"READY\n");
        daemon.signal(Signal::TERM);
        wait_until("the stop has begun", || daemon.log().contains("Stopping"));
        daemon.signal(Signal::TERM);
        pause_before_second_signal();
        assert!(daemon.is_running(), "{}", daemon.log());
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.exit_within(Duration::from_secs(10)).code(), Some(143));
        drop(lock);
        let _daemon = site.start();
        assert!(site.ask("READY").starts_with("JOB "));
    }
}

/// SIGHUP, SIGPIPE and a stop and continuation are survived.
#[test]
fn other_signals_do_not_kill() {
    let (site, mut daemon) = Site::serving(&list_of(10), &[]);
    for signal in [Signal::HUP, Signal::PIPE] {
        daemon.signal(signal);
        assert!(site.ask("READY").starts_with("JOB "));
    }
    daemon.freeze();
    let mut client = Client::connect(&site);
    client.write(b"READY\n");
    daemon.thaw();
    assert!(client.line().starts_with("JOB "));
    assert!(daemon.is_running());
    daemon.stop();
}

/// With hardly a descriptor to be had, those who are in are served on, and others again when
/// some leave; the daemon neither ends nor spins.
#[test]
fn no_descriptors_left() {
    let site = Site::new();
    site.write("f.1.txt", list_of(1_000));
    let script = "ulimit -n 64; exec \"$@\"";
    let mut daemon = site.spawn(site.through_shell(script, &[])).ready();
    site.wait_count(1_000);
    let mut first = Client::connect(&site);
    assert!(first.ask("READY").starts_with("JOB "));
    let mut spent = || {
        let used = processor_time(&daemon);
        for _ in 0..200 {
            assert!(first.ask("DONE nobody 0").starts_with("JOB "));
            crate::common::wait::pause(Duration::from_millis(3));
        }
        processor_time(&daemon) - used
    };
    let alone = spent();
    let crowd: Vec<Client> = (0..200).map(|_| Client::connect(&site)).collect();
    let used = spent();
    assert!(
        used < alone + Duration::from_millis(300),
        "{used:?} in about a second, {alone:?} else"
    );
    drop(crowd);
    wait_until("there is room again", || site.ask("READY").starts_with("JOB "));
    site.write("g.1.txt", "late 0 1\n");
    site.wait_count(1_001);
    assert!(daemon.is_running());
    daemon.stop();
}

/// User and system time so far.
fn processor_time(daemon: &Daemon) -> Duration {
    let path = format!("/proc/{}/stat", daemon.pid().as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap();
    let after_name = text.rsplit_once(')').unwrap().1;
    let ticks = |field: usize| -> u64 {
        after_name.split_whitespace().nth(field).unwrap().parse().unwrap()
    };
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// A socket whose file was deleted while running is bound again; the daemon is not lost.
#[test]
fn a_deleted_socket_is_bound_again() {
    let (site, _daemon) = Site::serving(&list_of(10), &[]);
    fs::remove_file(site.socket()).unwrap();
    wait_until("the socket is back", || UnixStream::connect(site.socket()).is_ok());
    assert!(site.ask("READY").starts_with("JOB "));
}
