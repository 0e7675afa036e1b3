//! Peers that behave badly: endless lines, silence, and answers that nobody reads. None of them
//! takes memory or time from others (spec 3).

use std::io::{ErrorKind, Write};
use std::time::Duration;

use crate::common::{Client, Site};

const TWO_JOBS: &str = "alpha 0 1\nbravo 0 2\n";

/// A megabyte without a newline is cut off, not collected.
#[test]
fn an_endless_line_is_cut_off() {
    let (site, daemon) = Site::serving(TWO_JOBS, &[]);
    let before = daemon.memory_kib("VmRSS:");
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(&site)).collect();
    for client in &mut clients {
        client.write(&vec![b'x'; 1024 * 1024]);
    }
    for client in clients {
        assert_eq!(client.rest(), "");
    }
    let grown = daemon.memory_kib("VmRSS:").saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} KiB more");
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
}

/// Peers that say nothing, or half a line, keep nobody from being served and are served
/// themselves when they go on.
#[test]
fn slow_and_silent_peers_hold_up_nobody() {
    let (site, _daemon) = Site::serving(TWO_JOBS, &[]);
    let mut slow: Vec<Client> = (0..100).map(|_| Client::connect(&site)).collect();
    for client in slow.iter_mut().step_by(2) {
        client.write(b"REA");
    }
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("DONE alpha 0"), "JOB bravo 0 2\n");
    for (i, client) in slow.iter_mut().enumerate() {
        client.write(if i % 2 == 0 { b"DY\n" } else { b"READY\n" });
        assert_eq!(client.line(), "NOJOBS\n");
    }
}

/// A peer that sends without reading is held back by its own socket; the daemon's memory
/// stays bounded and others are served.
#[test]
fn a_peer_that_never_reads_is_held_back() {
    let (site, daemon) = Site::serving(TWO_JOBS, &[]);
    let before = daemon.memory_kib("VmRSS:");
    let deaf: Vec<Client> = (0..3).map(|_| Client::connect(&site)).collect();
    for client in &deaf {
        fill(client);
    }
    assert!(site.ask("DONE nobody 0").ends_with('\n'));
    let grown = daemon.memory_kib("VmRSS:").saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} KiB more");
}

/// Writes requests until the socket takes no more, up to 8 MiB.
fn fill(client: &Client) {
    client.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let requests = b"DONE nobody 0\n".repeat(1_000);
    let mut stream = client.stream();
    for _ in 0..600 {
        match stream.write_all(&requests) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(e) => panic!("{e}"),
        }
    }
    panic!("the daemon took 8 MiB of requests from a peer that reads no answer");
}
