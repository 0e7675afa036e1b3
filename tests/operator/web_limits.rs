//! What `shiftboss web` bears from who has no token: connections that are held, answers that nobody reads, tokens that are guessed.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::actions::{ANN, WRONG, command_with_token, with_token};
use crate::common::{Site, wait_until};
use crate::web::{Page, answer, connect, wait_ready};

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

/// Sockets that the page has open.
fn sockets(page: &Page) -> usize {
    let links = fs::read_dir(format!("/proc/{}/fd", page.pid())).unwrap();
    let links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    links.filter(|to| to.to_string_lossy().starts_with("socket:")).count()
}

/// A body is not waited for before the token is known; a body, a second head and a client that reads nothing are not for ever.
#[test]
fn nothing_is_held_for_ever() {
    let site = Site::new();
    let _daemon = site.start();
    fs::create_dir_all(site.path("logs/2026-01-02")).unwrap();
    let log = fs::File::create(site.path("logs/2026-01-02/alpha.log")).unwrap();
    log.set_len(16 * 1024 * 1024).unwrap();
    let output = site.path("logs/{day}/{key}.log").display().to_string();
    let page = with_token(&site, &["--output", &output]);
    assert_eq!(answer(begin(&page, &unfinished(""))).status, 401);
    assert_eq!(answer(begin(&page, &unfinished(WRONG))).status, 401);
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let raw = "GET /output?k=alpha&day=2026-01-02&raw=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let before = sockets(&page);
    let mut held = [unfinished(ANN), format!("{get}GET /")].map(|said| begin(&page, &said));
    let unread = begin(&page, raw);
    wait_until("all are there", || sockets(&page) >= before + 3);
    for stream in &mut held {
        wait_until("it is closed", || is_closed(stream));
    }
    wait_until("what nobody reads is given up", || sockets(&page) <= before);
    drop(unread);
}

/// However many connections are held, and whatever the limit on open files, there is one for `/healthz`.
#[test]
fn health_has_room() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let site = Site::new();
    let _daemon = site.start();
    let (web, mut shell) = (command_with_token(&site, &[]), Command::new("sh"));
    shell.args(["-c", "ulimit -n 600; exec \"$@\"", "sh"]);
    shell.arg(web.get_program()).args(web.get_args());
    let page = wait_ready(&site, shell);
    let held: Vec<_> = (0..1_000).map(|_| begin(&page, &unfinished(ANN))).collect();
    assert_eq!(page.get("/healthz").status, 200);
    drop(held);
}

/// Wrong tokens wait for each other, however many come at once; the right one waits for none of them.
#[test]
fn guesses_wait_for_each_other() {
    let site = Site::new();
    let _daemon = site.start();
    let page = with_token(&site, &[]);
    let request = |token| {
        format!(
            "POST /actions/pause HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{token}\r\n"
        )
    };
    let begun = Instant::now();
    let guesses: Vec<_> = (0..100).map(|_| begin(&page, &request(WRONG))).collect();
    assert_eq!(answer(begin(&page, &request(ANN))).status, 303);
    let told = begun.elapsed();
    let statuses: Vec<_> = guesses.into_iter().map(|guess| answer(guess).status).collect();
    assert!(told < begun.elapsed() / 2, "the right one took {told:?}");
    assert!(begun.elapsed() > Duration::from_secs(9));
    let tried = statuses.iter().filter(|status| **status == 401).count();
    assert!((1..=15).contains(&tried), "{tried} in {:?}", begun.elapsed());
    assert!(statuses.iter().all(|status| matches!(status, 401 | 429)));
}
