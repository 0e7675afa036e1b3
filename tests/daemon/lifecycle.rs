//! Starting, stopping, signals, and the limits of the process.

use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::common::sql::editor;
use crate::common::wait::{SetOnDrop, pause_before_second_signal};
use crate::common::{Client, Daemon, Site, wait_until, wait_within};
use rustix::process::Signal;

fn many_jobs(count: usize) -> Site {
    let site = Site::new();
    let lines: Vec<String> = (0..count).map(|i| format!("key{i} 0 {i}\n")).collect();
    site.write("f.1.txt", lines.concat());
    site
}

/// SIGTERM and SIGINT under load: what was accepted is finished, the exit code is 0 within
/// five seconds, the socket is gone, and everything acknowledged is in the database.
#[test]
fn a_clean_stop_under_load() {
    for signal in [Signal::TERM, Signal::INT] {
        let site = many_jobs(20_000);
        let mut daemon = site.start();
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

/// A clean stop with connections that are open, silent, or in the middle of a line does not
/// wait for them.
#[test]
fn idle_connections_do_not_hold_up_a_stop() {
    let site = many_jobs(10);
    let daemon = site.start();
    let mut clients: Vec<Client> = (0..200).map(|_| Client::connect(&site)).collect();
    for client in clients.iter_mut().step_by(2) {
        client.write(b"REA");
    }
    assert!(clients[1].ask("READY").starts_with("JOB "));
    daemon.stop();
    for client in clients {
        assert_eq!(client.rest(), "");
    }
}

/// A clean stop while 150,000 lines are being loaded; the next start goes on with them.
#[test]
fn a_clean_stop_while_loading() {
    let site = many_jobs(150_000);
    let daemon = site.start();
    wait_until("rows are coming in", || site.number("SELECT count(*) FROM queue") > 0);
    daemon.stop();
    let loaded = site.number("SELECT count(*) FROM queue");
    assert!(loaded < 150_000, "loaded before it could be stopped");
    let _daemon = site.start();
    assert!(site.number("SELECT count(*) FROM queue") >= loaded);
    wait_within(Duration::from_secs(120), "the rest is loaded", || {
        site.number("SELECT count(*) FROM queue") == 150_000
    });
}

/// A second signal ends a daemon that is held up in its stop, at once.
#[test]
fn a_second_signal_ends_at_once() {
    let site = many_jobs(10);
    let mut daemon = site.start();
    site.wait_count(10);
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

/// SIGHUP, SIGPIPE and a stop and continuation are survived.
#[test]
fn other_signals_do_not_kill() {
    let site = many_jobs(10);
    let mut daemon = site.start();
    site.wait_count(10);
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
    let site = many_jobs(1_000);
    let script = "ulimit -n 64; exec \"$@\"";
    let mut daemon = site.spawn(site.through_shell(script, &[])).ready();
    site.wait_count(1_000);
    let mut first = Client::connect(&site);
    assert!(first.ask("READY").starts_with("JOB "));
    let mut spent = || {
        let used = processor_time(&daemon);
        for _ in 0..300 {
            assert!(first.ask("DONE nobody 0").starts_with("JOB "));
            crate::common::wait::pause(Duration::from_millis(3));
        }
        processor_time(&daemon) - used
    };
    let alone = spent();
    let crowd: Vec<Client> = (0..200).map(|_| Client::connect(&site)).collect();
    let used = spent();
    assert!(
        used < alone + Duration::from_millis(400),
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

/// Beyond `--max-connections` a connection is closed rather than held; those who are in are
/// served on, and there is room again when one leaves.
#[test]
fn more_connections_than_allowed() {
    let site = many_jobs(10);
    let _daemon = site.start_with(&["--max-connections", "4"]);
    site.wait_count(10);
    let mut inside = Vec::new();
    // The connections of the start may still be on their way out.
    wait_until("four are in", || {
        let mut client = Client::connect(&site);
        if client.ask("DONE nobody 0").ends_with('\n') {
            inside.push(client);
        }
        inside.len() == 4
    });
    for _ in 0..10 {
        assert_eq!(Client::connect(&site).rest(), "");
    }
    assert!(inside[0].ask("READY").starts_with("JOB "));
    inside.pop();
    wait_until("there is room again", || site.ask("READY").ends_with('\n'));
}

/// An input directory that is not there is made; what is no directory is refused.
#[test]
fn the_input_directory_at_the_start() {
    let site = Site::bare();
    let daemon = site.start();
    assert!(site.input().is_dir());
    daemon.stop();
    fs::remove_dir_all(site.input()).unwrap();
    fs::write(site.input(), "a file").unwrap();
    let (code, log) = site.refused(site.serve(&[]));
    assert!(code == 73 && log.contains("input"), "{code}: {log}");
    assert_eq!(fs::read_to_string(site.input()).unwrap(), "a file");
}

/// A socket whose file was deleted while running is bound again; the daemon is not lost.
#[test]
fn a_deleted_socket_is_bound_again() {
    let site = many_jobs(10);
    let _daemon = site.start();
    fs::remove_file(site.socket()).unwrap();
    wait_until("the socket is back", || UnixStream::connect(site.socket()).is_ok());
    assert!(site.ask("READY").starts_with("JOB "));
}

/// Wrong command lines end with 64 and make nothing.
#[test]
fn wrong_command_lines() {
    let site = Site::bare();
    let wrong: [&[&str]; 6] = [
        &["--log-level", "loud"],
        &["--lease", "soon"],
        &["--durability", "none"],
        &["--socket-mode", "rw"],
        &["--max-connections", "0"],
        &["--no-such-option"],
    ];
    for options in wrong {
        let (code, log) = site.refused(site.serve(options));
        assert_eq!(code, 64, "{options:?}: {log}");
        assert!(!site.database().exists() && !site.input().exists());
    }
    assert_eq!(site.run(&["serve", "only-one"]).status.code(), Some(64));
    let same = site.run(&["serve", "same", "input", "./same"]);
    assert_eq!(same.status.code(), Some(64));
    assert!(String::from_utf8(same.stderr).unwrap().contains("both database and socket"));
}

/// `--log-format json` gives one JSON object a line.
#[test]
fn the_log_as_json() {
    let site = Site::new();
    site.write("a.b.txt", "bad 0 1\n");
    let daemon = site.start_with(&["--log-format", "json"]);
    assert_eq!(site.ask("nonsense \"quoted\""), "");
    let log = daemon.stop();
    assert!(log.lines().count() > 1);
    for line in log.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["level"].is_string() && value["timestamp"].is_string(), "{line}");
    }
}
