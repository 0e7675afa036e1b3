//! Very many connections at once.

use crate::common::{Client, Site, list_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const WANTED: usize = 10_000;
/// Requests at once: a daemon of a debug build on a busy machine must answer all in 4 s.
const WAVE: usize = 1_000;
/// Descriptors that are needed for other things than connections.
const SPARE: u64 = 200;

/// As many connections as wanted, or as the system's hard limit on descriptors allows.
fn possible() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    let hard = usize::try_from(hard.unwrap_or(u64::MAX).saturating_sub(SPARE));
    WANTED.min(hard.unwrap_or(WANTED))
}

/// 10,000 connections are held open at once and all are served, twice; one more is served
/// among them.
#[test]
fn ten_thousand_connections() {
    let (site, daemon) = Site::serving(&list_of(WANTED), &["--max-connections", "20000"]);
    let before = daemon.memory_kib("VmRSS:");
    let mut crowd: Vec<Client> = (0..possible()).map(|_| Client::connect(&site)).collect();
    for request in [b"READY\n".as_slice(), b"DONE nobody 0\n"] {
        for wave in crowd.chunks_mut(WAVE) {
            wave.iter_mut().for_each(|client| client.write(request));
            for client in wave {
                let answer = client.line();
                assert!(answer.starts_with("JOB ") || answer == "NOJOBS\n", "{answer:?}");
            }
        }
    }
    let (idle, most) = (daemon.memory_kib("VmRSS:"), daemon.memory_kib("VmHWM:"));
    let served = crowd.len();
    println!("{served} connections: {before} KiB before, {idle} KiB with all, {most} KiB at most");
    assert!(most < 600 * 1024, "{most} KiB");
    assert!(site.ask("DONE nobody 0").ends_with('\n'));
    drop(crowd);
    let out = usize::try_from(site.number("SELECT count(*) FROM log")).unwrap();
    assert_eq!(out, WANTED.min(2 * served + 1), "every request got another job");
    daemon.stop();
}
