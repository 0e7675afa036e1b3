//! What `shiftboss web` bears from who has no token: connections that are held, and answers that nobody reads.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::actions::{ANN, WRONG, with_token};
use crate::common::{Site, wait_until};
use crate::web::{Page, answer, connect, start};

/// What is asked for of a form that does not come.
fn unfinished(head: &str) -> String {
    format!(
        "POST /actions/retry HTTP/1.1\r\nHost: localhost\r\n{head}Content-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: 100\r\n\r\nk="
    )
}

fn begin(page: &Page, request: &str) -> TcpStream {
    let mut stream = connect(&page.address);
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 1024]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Connections that the page has not closed: established, or closed by the client only.
fn connections(page: &Page) -> usize {
    let port: u16 = page.address.rsplit(':').next().unwrap().parse().unwrap();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_open = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns[1].ends_with(&format!(":{port:04X}")) && ["01", "08"].contains(&columns[3])
    };
    table.lines().skip(1).filter(is_open).count()
}

/// A body is not waited for before the token is known; a body, a second head and a client that reads nothing are not for ever.
#[test]
fn nothing_is_held_for_ever() {
    let (site, _daemon) = Site::running(&[]);
    fs::create_dir_all(site.path("logs/2026-01-02")).unwrap();
    let log = fs::File::create(site.path("logs/2026-01-02/alpha.log")).unwrap();
    log.set_len(16 * 1024 * 1024).unwrap();
    let output = site.path("logs/{day}/{key}.log").display().to_string();
    let page = with_token(&site, &["--output", &output]);
    assert_eq!(answer(begin(&page, &unfinished(""))).status, 401);
    assert_eq!(answer(begin(&page, &unfinished(WRONG))).status, 401);
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let raw = "GET /output?k=alpha&day=2026-01-02&raw=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut held = [unfinished(ANN), format!("{get}GET /")].map(|said| begin(&page, &said));
    let unread = begin(&page, raw);
    assert_eq!(unread.peek(&mut [0]).unwrap(), 1);
    for stream in &mut held {
        wait_until("it is closed", || is_closed(stream));
    }
    wait_until("what nobody reads is given up", || connections(&page) == 0);
    drop(unread);
}

/// Whoever holds all connections keeps others waiting for the time of a head, takes no file that the database needs, and no worker
/// feels it.
#[test]
fn silent_connections_hold_others_up_for_a_head_only() {
    let (site, _daemon) = Site::serving("alpha 1\nbravo 2\n", &[]);
    let page = start(&site, &[]);
    let before = page.process.memory_kib("VmRSS:");
    let _silent: Vec<_> = (0..900).map(|_| connect(&page.address)).collect();
    let key = site.next_key("READY").unwrap();
    assert!(site.next_key(&format!("DONE {key} 0")).is_some());
    assert_eq!(page.get("/healthz").status, 200);
    let grown = page.process.memory_kib("VmRSS:").saturating_sub(before);
    assert!(grown < 50 * 1024, "{grown} KiB");
}
