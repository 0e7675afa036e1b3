//! `shiftboss web`: metrics and health over HTTP, under which names it answers, and what it bears.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use crate::common::{Daemon, Site, wait_until};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A page that runs.
pub struct Page {
    pub process: Daemon,
    pub address: String,
}

pub fn start(site: &Site, options: &[&str]) -> Page {
    wait_ready(site, command(site, options))
}

pub fn command(site: &Site, options: &[&str]) -> Command {
    let mut command = site.program();
    // On a server a daemon is found by its socket.
    let target = if site.server().is_some() { site.socket() } else { site.database() };
    command.args(["web", "--listen", "127.0.0.1:0"]).args(options).arg("-t").arg(target);
    command
}

pub fn wait_ready(site: &Site, command: Command) -> Page {
    let process = site.spawn(command);
    let mut address = None;
    wait_until("the page listens", || {
        let log = process.log();
        address = log
            .lines()
            .find_map(|line| Some(line.split_once("http://")?.1.trim_end_matches('/').to_owned()));
        address.is_some()
    });
    Page { process, address: address.unwrap() }
}

/// A status, the head and the body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub fn answer(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A close after the answer may come as a reset.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// The body of what anybody's server answers on the loopback.
pub fn get(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream).body
}

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What is answered to a request, by whoever listens there.
pub fn to(address: &str, request: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream)
}

impl Page {
    pub fn raw(&self, request: &str) -> Answer {
        to(&self.address, request)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }
}

/// They are those of the command; the daemon may stop and come back.
#[test]
fn metrics_and_health() {
    let (site, daemon) = Site::serving("alpha 1\n", &[]);
    let page = start(&site, &[]);
    let metrics = page.get("/metrics");
    assert_eq!(metrics.status, 200);
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(metrics.head.contains(kind), "{}", metrics.head);
    assert!(metrics.body.contains("\nshiftboss_up 1.0\n") && metrics.body.ends_with("# EOF\n"));
    // A pause is no illness.
    assert!(site.run(&["pause", "-t", "socket"]).status.success());
    let health = page.get("/healthz");
    assert_eq!((health.status, &*health.body), (200, "ok\n"));
    wait_until("it is paused", || page.get("/metrics").body.contains("\nshiftboss_paused 1.0\n"));
    assert_eq!(page.get("/robots.txt").body, "User-agent: *\nDisallow: /\n");
    daemon.stop();
    wait_until("it is told that the daemon stopped", || page.get("/healthz").status == 503);
    wait_until("it is down", || {
        let metrics = page.get("/metrics");
        // Without its socket the database is not known.
        metrics.body.contains("\nshiftboss_up 0.0\n")
            || site.server().is_some() && metrics.status == 503
    });
    let _daemon = site.start();
    wait_until("it is well again", || page.get("/healthz").status == 200);
    assert_eq!(page.get("/nothing").body, "there is no such page\n");
    let head = "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    wait_until("there are metrics again", || page.raw(head).status == 200);
    assert_eq!(page.raw(head).body, "");
    page.process.stop();
}

/// A daemon under `--classic` has no health to ask for: it takes connections.
#[test]
fn the_health_of_a_classic_daemon() {
    let (site, daemon) = Site::running(&["--classic"]);
    let page = start(&site, &[]);
    assert_eq!(page.get("/healthz").status, 200);
    daemon.stop();
    wait_until("it is told that the daemon stopped", || page.get("/healthz").status == 503);
}

/// The page is nobody's who comes under another name; what browsers are told goes with each answer.
#[test]
fn foreign_names_are_refused() {
    let (site, _daemon) = Site::running(&[]);
    let socket = site.path("http");
    let listen = format!("unix:{}", socket.display());
    let page = start(&site, &["--listen", &listen, "--allow-host", "Queue.example.org"]);
    wait_until("it says where it listens", || page.process.log().contains(&listen));
    let get = |host: &str| {
        page.raw(&format!("GET /robots.txt HTTP/1.1\r\n{host}Connection: close\r\n\r\n"))
    };
    for ours in ["localhost", "127.0.0.1:7390", "[::1]", "queue.example.org:80"] {
        assert_eq!(get(&format!("Host: {ours}\r\n")).status, 200, "{ours}");
    }
    for foreign in [
        "Host: evil.org\r\n",
        "Host: localhost.evil.org\r\n",
        "Host: 10.0.0.1\r\n",
        "",
        "Host: \r\n",
    ] {
        let refused = get(foreign);
        assert!(matches!(refused.status, 400 | 421), "{foreign}: {refused:?}");
        assert!(!refused.body.contains("User-agent"), "{foreign}");
    }
    let two = "Host: localhost\r\nHost: evil.org\r\n";
    assert!(matches!(get(two).status, 400 | 421));
    let absolute = page.raw(
        "GET http://evil.org/robots.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(absolute.status, 421);
    let told = get("Host: localhost\r\n").head;
    for header in [
        "content-security-policy: default-src 'none';",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(told.contains(header), "{told}");
    }
    let mut local = UnixStream::connect(&socket).unwrap();
    local
        .write_all(b"GET /robots.txt HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(answer(local).status, 200);
}

/// Large heads, garbage, and clients that do not go on: a clear status or a close, and others are served.
#[test]
fn bad_clients_are_borne() {
    let (site, _daemon) = Site::running(&[]);
    let page = start(&site, &[]);
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(&page.address)).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /heal").unwrap());
    let large = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-A: {}\r\n\r\n",
        "a".repeat(17_000)
    );
    assert_eq!(page.raw(&large).status, 431);
    let long = format!(
        "GET /healthz?{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "a".repeat(17_000)
    );
    assert_eq!(page.raw(&long).status, 431);
    for garbage in ["\x16\x03\x01\x02\x00\x01\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        assert!(matches!(page.raw(garbage).status, 0 | 400..=499), "{garbage}");
    }
    for method in ["POST", "PUT", "DELETE", "TRACE"] {
        let request = format!(
            "{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        assert!(matches!(page.raw(&request).status, 404 | 405), "{method}");
    }
    assert_eq!(page.get("/healthz").status, 200);
    for mut stream in slow {
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(
            ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        );
    }
}

/// What the init system listens on takes the place of `--listen`: an address or a socket.
#[test]
fn sockets_of_the_init_system() {
    let (site, _daemon) = Site::running(&[]);
    let (tcp, path) = (TcpListener::bind("127.0.0.1:0").unwrap(), site.path("http"));
    let unix = UnixListener::bind(&path).unwrap();
    let start_on = |listener: OwnedFd| {
        let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 0</dev/null";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(site.program().get_program());
        shell.args(["web", "--listen", "127.0.0.1:1", "-t", "socket"]).current_dir(site.path("."));
        shell.stdin(listener);
        site.spawn(shell)
    };
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let address = tcp.local_addr().unwrap().to_string();
    let _first = start_on(tcp.into());
    assert_eq!(to(&address, request).status, 200);
    let second = start_on(unix.into());
    let mut local = UnixStream::connect(&path).unwrap();
    local.write_all(request.as_bytes()).unwrap();
    assert_eq!(answer(local).status, 200);
    let log = second.log();
    assert!(log.contains(&format!("Listening: unix:{}\n", path.display())), "{log}");
    assert!(!log.contains("http://"), "{log}");
    let connected = connect(&address);
    for socket in [UnixStream::pair().unwrap().0.into(), connected.into()] {
        let mut refused = start_on(socket);
        assert_eq!(refused.exit().code(), Some(73));
        assert!(refused.log().contains("does not listen"), "{}", refused.log());
    }
}

/// What runs is told alike by all who tell it, also where only the server tells it: its URL is the target.
mod on_server {
    use super::*;

    #[test]
    #[ignore = "needs a server: make test-postgres"]
    fn a_url_as_target() {
        let (site, daemon) = Site::running(&[]);
        let url = site.target().display().to_string();
        let page = |target: &str| {
            let mut command = site.program();
            command.args(["web", "--listen", "127.0.0.1:0", "-t", target]);
            wait_ready(&site, command)
        };
        let code = |target: &str| site.run(&["status", "--check", "-t", target]).status.code();
        let of_all = page(&url);
        let told = |page: &Page| {
            let (metrics, banner) = (page.get("/metrics").body, page.get("/").body);
            let up = metrics.contains("\nshiftboss_up 1.0\n");
            (page.get("/healthz").status, up, banner.contains("Stopped: no daemon runs"))
        };
        assert_eq!((told(&of_all), code(&url)), ((200, true, false), Some(0)));
        daemon.stop();
        assert_eq!(code(&url), Some(69));
        wait_until("it is down", || told(&of_all) == (503, false, true));
        let _again = site.start();
        wait_until("it is up", || told(&of_all) == (200, true, false));
    }
}

/// Without a database there is nothing to tell yet, and the page stays.
#[test]
fn a_database_may_come_later() {
    let site = Site::new();
    let page = start(&site, &[]);
    assert_eq!((page.get("/metrics").status, page.get("/healthz").status), (503, 503));
    let answer = page.get("/");
    assert!(answer.status == 503 && answer.body.contains("The database cannot be read."));
    let _daemon = site.start();
    wait_until("there are metrics", || page.get("/metrics").status == 200);
}

/// Where other machines may come, somebody has said so.
#[test]
fn other_machines_need_a_word() {
    let site = Site::new();
    let mut command = site.program();
    command.args(["web", "--listen", "0.0.0.0:0"]);
    let (code, said) = site.refused(command);
    assert_eq!(code, 78);
    assert!(said.contains("--listen-any"), "{said}");
}
