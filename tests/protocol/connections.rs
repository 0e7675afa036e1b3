//! Very many connections at once.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::common::{Site, child};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const WANTED: u64 = 10_000;

/// Requests at once: a daemon of a debug build on a busy machine must answer all in 4 s.
const WAVE: usize = 1_000;

/// Descriptors that daemon and client need for other things than connections.
const SPARE: u64 = 200;

/// As many connections as wanted, or as the system's hard limit on descriptors allows.
fn possible() -> u64 {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    WANTED.min(hard.saturating_sub(SPARE))
}

/// 10,000 connections are held open at once and all are served, twice; one more is served
/// among them. The client is a process of its own.
#[test]
fn ten_thousand_connections() {
    let site = Site::new();
    let lines: Vec<String> = (0..WANTED).map(|i| format!("key{i} 0 {i}\n")).collect();
    site.write("f.1.txt", lines.concat());
    let daemon = site.start_with(&["--max-connections", "20000"]);
    site.wait_count(lines.len());
    let before = daemon.memory_kib("VmRSS:");
    let mut crowd = child::command("connections::role_crowd");
    crowd.env("SITE_SOCKET", site.socket()).stdin(std::process::Stdio::piped());
    let mut crowd = crowd.spawn().unwrap();
    let served = child::wait_word(&mut crowd, "served ");
    assert_eq!(served, possible().to_string());
    let (idle, most) = (daemon.memory_kib("VmRSS:"), daemon.memory_kib("VmHWM:"));
    println!("{served} connections: {before} KiB before, {idle} KiB with all, {most} KiB at most");
    assert!(most < 600 * 1024, "{most} KiB");
    assert!(site.ask("DONE nobody 0").ends_with('\n'));
    drop(crowd.stdin.take());
    assert!(crowd.wait().unwrap().success());
    let out = site.number("SELECT count(*) FROM log");
    assert_eq!(out, i64::try_from(WANTED).unwrap(), "every request got another job");
    daemon.stop();
}

/// The crowd: opens all connections, then asks over each, twice, and holds them until its
/// standard input ends.
#[test]
fn role_crowd() {
    if !child::plays("connections::role_crowd") {
        return;
    }
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    let socket = std::env::var_os("SITE_SOCKET").unwrap();
    let connect = |_| UnixStream::connect(&socket).unwrap();
    let mut crowd: Vec<UnixStream> = (0..possible()).map(connect).collect();
    for request in ["READY\n", "DONE nobody 0\n"] {
        for wave in crowd.chunks_mut(WAVE) {
            ask_all(wave, request);
        }
    }
    println!("\nserved {}", crowd.len());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn ask_all(wave: &mut [UnixStream], request: &str) {
    for stream in &mut *wave {
        stream.write_all(request.as_bytes()).unwrap();
    }
    for stream in wave {
        let answer = line(stream);
        assert!(answer.starts_with(b"JOB ") || answer == b"NOJOBS\n");
    }
}

fn line(stream: &mut UnixStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut buffer = [0_u8; 256];
    while !answer.ends_with(b"\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed without an answer");
        answer.extend_from_slice(&buffer[..count]);
    }
    answer
}
