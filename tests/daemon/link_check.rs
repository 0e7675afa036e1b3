//! examples/link-check as it is, with shorter times: thousands of links of many hosts, all of them at a proxy of the
//! test's own, so that no name is looked up.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::Site;
use crate::common::wait::pause;

const HOSTS: usize = 50;
/// Links of a host.
const PAGES: usize = 100;
/// What a host that is asked too much says, in seconds.
const RETRY_AFTER: u64 = 3;
/// How long an answer takes.
const TAKES: Duration = Duration::from_millis(10);

/// What the hosts know.
#[derive(Default)]
struct Hosts {
    asked: HashMap<String, u32>,
    out: HashMap<String, u32>,
    paused: HashMap<String, Instant>,
    /// Requests of others while one is paused.
    meanwhile: u32,
    faults: Vec<String>,
}

impl Hosts {
    fn begin(&mut self, url: &str, host: &str) -> (u16, String) {
        let out = self.out.entry(host.to_owned()).or_default();
        *out += 1;
        if *out > 1 {
            self.faults.push(format!("{url}: {out} requests at once"));
        }
        match self.paused.get(host) {
            Some(until) if Instant::now() < *until => self.faults.push(format!("{url}: too early")),
            _ => {}
        }
        self.meanwhile += u32::from(self.paused.values().any(|until| Instant::now() < *until));
        let asked = self.asked.entry(url.to_owned()).or_default();
        *asked += 1;
        match (url.rsplit_once('/').map_or("", |it| it.1), *asked) {
            ("gone", _) => (404, String::new()),
            ("flaky", 1) => (500, String::new()),
            ("busy", 1) => (429, format!("Retry-After: {RETRY_AFTER}\r\n")),
            ("late", 1) => (503, format!("Retry-After: {}\r\n", date_in(RETRY_AFTER + 1))),
            _ => (200, String::new()),
        }
    }

    fn end(&mut self, host: &str, status: u16) {
        *self.out.get_mut(host).unwrap() -= 1;
        if [429, 503].contains(&status) {
            let until = Instant::now() + Duration::from_secs(RETRY_AFTER);
            self.paused.insert(host.to_owned(), until);
        }
    }
}

/// A time as servers write it, which is whole seconds.
fn date_in(seconds: u64) -> String {
    let said = Command::new("date").args(["-uR", "-d", &format!("{seconds} seconds")]).output();
    String::from_utf8(said.unwrap().stdout).unwrap().trim().to_owned()
}

/// Answers one request to a proxy.
fn answer(hosts: &Mutex<Hosts>, mut stream: TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    lines.map_while(Result::ok).find(|line| line.is_empty())?;
    let url = request.split(' ').nth(1)?;
    let host = url.split('/').nth(2)?;
    let (status, more) = hosts.lock().unwrap().begin(url, host);
    let text = format!("HTTP/1.1 {status} It\r\n{more}Content-Length: 1\r\n\r\n");
    stream.write_all(text.as_bytes()).ok()?;
    pause(TAKES);
    // Before the client has the whole answer: it may end at once, and the next job begin.
    hosts.lock().unwrap().end(host, status);
    stream.write_all(b".").ok()
}

fn serve(hosts: &Mutex<Hosts>, listener: &TcpListener, is_over: &AtomicBool) {
    std::thread::scope(|scope| {
        for stream in listener.incoming().map_while(Result::ok) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            scope.spawn(move || answer(hosts, stream));
        }
    });
}

fn page(host: usize, page: usize) -> String {
    let name = match (host, page) {
        (0..5, 1) => "gone".to_owned(),
        (5..10, 1) => "flaky".to_owned(),
        (10, 1) => "busy".to_owned(),
        (11, 1) => "late".to_owned(),
        _ => page.to_string(),
    };
    format!("http://h{host}.test/{name}")
}

/// The example in the site's directory, with times that suit a test, and pages with links.
fn copy_to(site: &Site) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/link-check");
    for name in ["run.sh", "check.sh", "fetch.sh"] {
        fs::copy(example.join(name), site.path(name)).unwrap();
    }
    let mut rules = fs::read_to_string(example.join("shiftboss.toml")).unwrap();
    for (usual, short) in [
        ("delay = \"5s\"", "delay = \"2ms\""),
        ("rest_max = \"1min\"", "rest_max = \"2ms\""),
        ("first = \"1min\"", "first = \"1s\""),
    ] {
        assert!(rules.contains(usual), "{usual}");
        rules = rules.replace(usual, short);
    }
    fs::write(site.path("shiftboss.toml"), rules).unwrap();
    fs::create_dir(site.path("pages")).unwrap();
    let pages = (0..HOSTS).flat_map(|host| (0..PAGES).map(move |it| page(host, it)));
    let text: String = pages.map(|url| format!("See [this]({url}), or <{url}>.\n")).collect();
    fs::write(site.path("pages/all.md"), text).unwrap();
}

/// One request at a time to a host; what a host asks for is obeyed, and no other host waits for that; what fails for once is asked
/// again; what is dead is reported, and nothing else.
#[test]
fn the_example_is_polite() {
    let (site, hosts, is_over) = (Site::bare(), Mutex::<Hosts>::default(), AtomicBool::new(false));
    copy_to(&site);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(|| serve(&hosts, &listener, &is_over));
        let mut run = site.program_of("sh");
        run.arg("run.sh").env("SHIFTBOSS", env!("CARGO_BIN_EXE_shiftboss")).env("WORKERS", "50");
        run.env("http_proxy", format!("http://{address}")).env_remove("no_proxy");
        let output = run.output();
        is_over.store(true, Ordering::Relaxed);
        TcpStream::connect(address).unwrap();
        output.unwrap()
    });
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let hosts = hosts.into_inner().unwrap();
    assert_eq!(hosts.faults, Vec::<String>::new());
    assert!(hosts.meanwhile > 100, "{} requests of others", hosts.meanwhile);
    assert_eq!(hosts.asked.len(), HOSTS * PAGES);
    let twice = hosts.asked.iter().filter(|it| *it.1 == 2).map(|it| it.0.clone());
    assert_eq!(twice.collect::<HashSet<_>>(), (5..12).map(|host| page(host, 1)).collect());
    assert!(hosts.asked.values().all(|count| *count <= 2));
    let (_, named) = told.split_once("said of it:\n").unwrap();
    let dead: HashSet<_> = (0..5).map(|host| page(host, 1) + "  404").collect();
    assert_eq!(named.lines().map(str::to_owned).collect::<HashSet<_>>(), dead, "{told}");
}

/// What the daemon says of a configuration that it refuses is not hidden.
#[test]
fn a_refused_configuration_is_shown() {
    let site = Site::bare();
    copy_to(&site);
    fs::write(site.path("shiftboss.toml"), "databas = 'state.db'\n").unwrap();
    let mut run = site.program_of("sh");
    let output = run.arg("run.sh").env("SHIFTBOSS", env!("CARGO_BIN_EXE_shiftboss")).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("shiftboss.toml:1"), "{said}");
}
