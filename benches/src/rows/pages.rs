//! Rows 18 and 19: what a page and a frame of `top` cost on a large queue, and what a worker waits for while many look at pages.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Setting;
use super::loading::Workers;
use super::shapes::{Shape, build};
use crate::bare::key;
use crate::load::{self, Plan};
use crate::report::{Figure, ms};
use crate::servers::Server;

/// How often each page is looked at.
const LOOKS: usize = 10;
/// After which time a page is made anew.
const FRESH: Duration = Duration::from_millis(1_050);
/// Who looks at pages while workers ask.
const CLIENTS: usize = 50;
/// Between two looks of a client: an open page asks every five seconds.
const PAUSE: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_millis(100);
/// The same of a frame on a terminal.
const FRAME_MOST: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = build(setting, Shape::Waiting, setting.largest)?;
    let server = Server::shiftboss(&setting.program, home.path(), &[])?;
    // So that there is something to be seen of what ended.
    load::run(&Plan {
        requests: 200_000,
        ..Plan::at(
            vec![server.socket.clone()],
            server.protocol,
            8,
            Duration::from_secs(setting.seconds),
        )
    })?;
    let page = Page::start(&setting.program, home.path())?;
    let mut figures = looks(&page, setting.largest)?;
    figures.push(frames(&setting.program, home.path(), setting.largest)?);
    figures.push(beside(&server, &page, setting)?);
    drop(page);
    server.stop()?;
    Ok(figures)
}

/// Every page, and each time another key of the queue: the last ones are far behind in the order.
fn addresses(round: usize, keys: usize) -> Vec<String> {
    let key = key(keys - 1 - round * (keys / (LOOKS + 1)));
    let named = [
        "",
        "queue",
        "queue?n=1000",
        "log",
        "log?outcome=failed",
        "fetchers",
        "fetcher?f=a",
        "held",
        "tasks?status=delayed",
    ];
    let of_key =
        ["key?k=", "key.atom?k=", "api/v1/why?k="].map(|address| format!("{address}{key}"));
    let begin = &key[..key.len().min(6)];
    let others = [format!("search?q={begin}"), "api/v1/status".to_owned(), "metrics".to_owned()];
    named.map(str::to_owned).into_iter().chain(of_key).chain(others).collect()
}

fn looks(page: &Page, keys: usize) -> io::Result<Vec<Figure>> {
    let mut slowest: Vec<(String, Vec<Duration>)> = Vec::new();
    for round in 0..LOOKS {
        for (at, address) in addresses(round, keys).into_iter().enumerate() {
            let begun = Instant::now();
            get(&page.address, &address)?;
            if slowest.len() == at {
                slowest.push((address, Vec::new()));
            }
            slowest[at].1.push(begun.elapsed());
        }
        thread::sleep(FRESH);
    }
    let figure = |(address, mut took): (String, Vec<Duration>)| {
        took.sort_unstable();
        let (half, most) = (took[LOOKS / 2], took[LOOKS - 1]);
        let name = address.split_inclusive('=').next().unwrap_or_default().to_owned();
        Figure {
            row: 18,
            what: format!(
                "the page `/{}` of {keys} rows",
                if name.ends_with("k=") { &name } else { &address }
            ),
            measured: format!("p50 {}, max {} of {LOOKS}", ms(half), ms(most)),
            compared: String::new(),
            target: "100 ms",
            met: Some(most <= MOST),
        }
    };
    Ok(slowest.into_iter().map(figure).collect())
}

/// A frame with all four lists, the start of the program among it: on a terminal it runs already, and asks for one list.
fn frames(program: &Path, home: &Path, keys: usize) -> io::Result<Figure> {
    let mut took = Vec::new();
    for _ in 0..LOOKS {
        let begun = Instant::now();
        let mut command = Command::new(program);
        let frame = command.args(["top", "--once", "-t", "socket"]).current_dir(home).output()?;
        took.push(begun.elapsed());
        if !frame.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&frame.stderr).into_owned()));
        }
    }
    took.sort_unstable();
    let (half, most) = (took[LOOKS / 2], took[LOOKS - 1]);
    Ok(Figure {
        row: 18,
        what: format!("`top --once` of {keys} rows"),
        measured: format!("p50 {}, max {} of {LOOKS}", ms(half), ms(most)),
        compared: String::new(),
        target: "50 ms",
        met: Some(most <= FRAME_MOST),
    })
}

/// Six workers alone, and while clients look at all pages.
fn beside(server: &Server, page: &Page, setting: &Setting) -> io::Result<Figure> {
    let time = Duration::from_secs(setting.seconds.max(5));
    let waits = || {
        let workers = Workers::start(&server.socket);
        thread::sleep(time);
        workers.stop()
    };
    let alone = waits()?;
    let clients = Clients::start(&page.address, setting.largest);
    let watched = waits()?;
    let (seen, turned_away) = clients.stop()?;
    let p99 = |waits: &[Duration]| waits[waits.len() * 99 / 100];
    let (before, with) = (p99(&alone), p99(&watched));
    Ok(Figure {
        row: 19,
        what: format!(
            "a worker's wait, 6 workers, while {CLIENTS} clients look at a page each second"
        ),
        measured: format!(
            "p99 {}, max {}; {seen} pages, {turned_away} turned away",
            ms(with),
            ms(watched[watched.len() - 1])
        ),
        compared: format!("alone p99 {}, max {}", ms(before), ms(alone[alone.len() - 1])),
        target: "p99 1.1x, or 1 ms more",
        met: Some(with <= before.mul_f64(1.1).max(before + Duration::from_millis(1))),
    })
}

/// Who look at pages, each at another one.
struct Clients {
    stopping: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<io::Result<(usize, usize)>>>,
}

impl Clients {
    fn start(address: &str, keys: usize) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let threads = (0..CLIENTS).map(|client| {
            let (address, stopping) = (address.to_owned(), Arc::clone(&stopping));
            thread::spawn(move || look_on(&address, client, keys, &stopping))
        });
        Self { threads: threads.collect(), stopping }
    }

    /// Pages that were seen, and how often there was none.
    fn stop(self) -> io::Result<(usize, usize)> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut sum = (0, 0);
        for thread in self.threads {
            let (seen, away) =
                thread.join().map_err(|_| io::Error::other("a client panicked"))??;
            sum = (sum.0 + seen, sum.1 + away);
        }
        Ok(sum)
    }
}

fn look_on(
    address: &str,
    client: usize,
    keys: usize,
    stopping: &AtomicBool,
) -> io::Result<(usize, usize)> {
    let (mut seen, mut turned_away) = (0, 0);
    for round in client.. {
        if stopping.load(Ordering::Relaxed) {
            break;
        }
        let pages = addresses(round % LOOKS, keys);
        match get(address, &pages[round % pages.len()]) {
            Ok(()) => seen += 1,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => turned_away += 1,
            Err(error) => return Err(error),
        }
        thread::sleep(PAUSE);
    }
    Ok((seen, turned_away))
}

/// `shiftboss web` on a port of its own.
struct Page {
    child: Child,
    address: String,
}

impl Page {
    fn start(program: &Path, home: &Path) -> io::Result<Self> {
        let log = home.join("web.log");
        let mut command = Command::new(program);
        command.args(["web", "--listen", "127.0.0.1:0", "-t", "socket"]).current_dir(home);
        let child = command.stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let mut page = Self { child, address: String::new() };
        let until = Instant::now() + PATIENCE;
        while page.address.is_empty() {
            let said = fs::read_to_string(&log)?;
            let found = said.lines().find_map(|line| Some(line.split_once("http://")?.1));
            page.address = found.unwrap_or_default().trim_end_matches('/').to_owned();
            if Instant::now() > until {
                return Err(io::Error::other(format!("the page does not listen: {said}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(page)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for a page, and reads all of it.
fn get(address: &str, page: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /{page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.split(|byte| *byte == b' ').nth(1) {
        Some(b"200") => Ok(()),
        Some(b"503") => Err(io::ErrorKind::ResourceBusy.into()),
        other => Err(io::Error::other(format!("{page}: {other:?}"))),
    }
}
