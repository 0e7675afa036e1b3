//! The pages of `shiftboss web`: what is on them, that their links lead somewhere, and that nothing from outside is taken for HTML.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Site, wait_until};
use crate::web::{Page, start};

/// The addresses of a page's links, as HTML has them.
fn links(html: &str) -> BTreeSet<String> {
    let found = ["href=\"", "src=\""].into_iter().flat_map(|name| html.split(name).skip(1));
    let found = found.filter_map(|rest| rest.split('"').next());
    let is_ours = |link: &&str| !link.is_empty() && !link.starts_with('#') && !link.contains("://");
    found.filter(is_ours).map(to_text).collect()
}

fn to_text(html: &str) -> String {
    html.replace("&#38;", "&").replace("&amp;", "&")
}

/// Follows all links from the first page on; what each page said. All lie at one depth, so a reverse proxy may put them below any path.
pub fn crawl(page: &Page) -> Vec<(String, String)> {
    let (mut seen, mut left) = (Vec::new(), BTreeSet::from([".".to_owned()]));
    let mut known = left.clone();
    while let Some(link) = left.pop_first() {
        let answer = page.get(&format!("/{}", link.trim_start_matches('.')));
        assert_eq!(answer.status, 200, "{link}");
        assert!(
            !link.contains('/') || link.starts_with("static/"),
            "pages are at one depth: {link}"
        );
        assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{link}");
        if answer.head.contains("content-type: text/html; charset=utf-8") {
            let new: Vec<_> =
                links(&answer.body).into_iter().filter(|it| known.insert(it.clone())).collect();
            left.extend(new);
        }
        seen.push((link, answer.body));
    }
    seen
}

fn body<'a>(pages: &'a [(String, String)], link: &str) -> &'a str {
    let found = pages.iter().find(|(known, _)| known == link);
    &found.unwrap_or_else(|| panic!("no link leads to {link}")).1
}

/// Each page is reached by links from the first one, and tells what there is; with the daemon, and without.
#[test]
fn every_link_leads_to_a_page() {
    let (site, daemon) = Site::serving("alpha 1\nbravo https://example.org/2\n", &[]);
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    assert_eq!(site.next_key("DONE alpha 3").as_deref(), Some("bravo"));
    let page = start(&site, &[]);
    let pages = crawl(&page);
    let first = body(&pages, ".");
    for shown in ["<h2 id=\"fetchers\">", ">bravo</a>", "failure 3", "1 job was done", "classic"] {
        assert!(first.contains(shown), "{shown}: {first}");
    }
    let alpha = body(&pages, "key?k=alpha");
    assert!(alpha.contains("failed with exit code 3; due again with its fetcher"), "{alpha}");
    assert!(body(&pages, "queue").contains("Nothing can be handed out now."));
    assert!(body(&pages, "log").contains(">alpha</a>"));
    let failed = body(&pages, "log?outcome=failed");
    assert!(failed.contains(">alpha</a>") && failed.contains("<option value=\"failed\" selected>"));
    let fetcher = body(&pages, "fetcher?f=f");
    assert!(
        fetcher.contains("data-name=\"Lines\">2<")
            && fetcher.contains("1 job was done in the last 14 days")
    );
    assert!(body(&pages, "log?fetcher=f").contains(">alpha</a>"));
    assert!(
        body(&pages, "fetchers")
            .contains("<a href=\"fetcher?f=f\" rel=\"noreferrer nofollow\">f</a>")
    );
    let feed = body(&pages, "key.atom?k=alpha");
    assert!(
        feed.starts_with("<?xml") && feed.contains("<title>alpha: failure 3</title>"),
        "{feed}"
    );
    assert!(!first.contains("class=\"banner\""));
    if site.server().is_none() {
        daemon.stop();
        wait_until("the banner says so", || {
            page.get("/").body.contains("Stopped: no daemon runs, and nothing is handed out.")
        });
        crawl(&page);
    }
}

/// Keys and payloads are anybody's: none becomes HTML, and each key's link leads to its page.
#[test]
fn what_others_wrote_is_text() {
    let hostile = [
        "<script>alert(1)</script>",
        "\"'><img/src=x>",
        "a%2Fb",
        "../../etc/passwd",
        "?k=1&l=2#x",
        "a\u{202e}b",
        "{{7*7}}",
        "é\u{301}日本",
    ];
    let (site, _daemon) = Site::running(&[]);
    let long = "k".repeat(4_096);
    let lines: String =
        hostile.iter().chain(&[&*long]).map(|key| format!("{key} {key}\n")).collect();
    site.deliver("f", 1, &lines);
    site.wait_count(hostile.len() + 1);
    let page = start(&site, &[]);
    let pages = crawl(&page);
    let keys = pages.iter().filter(|(link, _)| link.starts_with("key?k="));
    assert_eq!(keys.count(), hostile.len(), "the long one has no link");
    for (link, html) in &pages {
        for raw in ["<script>alert", "<img", "\u{202e}"] {
            assert!(!html.contains(raw), "{link}: {html}");
        }
    }
    let long = page.get(&format!("/key?k={long}"));
    assert_eq!(long.status, 200);
    assert!(long.body.contains("k...</h1>"), "it is cut");
}

/// Parameters out of bounds are refused, and what is not known is not found.
#[test]
fn parameters_have_bounds() {
    let (site, _daemon) = Site::running(&[]);
    let page = start(&site, &["--output", "logs/{day}/{key}.log"]);
    let (long, name) = ("k".repeat(4_097), "f".repeat(256));
    for wrong in [
        "queue?n=0",
        "queue?n=1001",
        "queue?n=x",
        "key",
        &format!("key?k={long}"),
        &format!("key.atom?k={long}"),
        &format!("search?q={long}"),
        "log?before=x",
        "log?outcome=lost",
        &format!("log?fetcher={name}"),
        &format!("fetcher?f={name}"),
        "output?k=a&day=..",
        "output?k=a&day=2026-02-30",
        "output?k=a&attempt=x",
        "tasks?status=lost",
        "api/v1/queue?n=1001",
        "api/v1/why",
        "api/v1/stats?hours=2161",
        "api/v1/stats?by=minute",
    ] {
        assert_eq!(page.get(&format!("/{wrong}")).status, 400, "{wrong}");
    }
    for unknown in
        ["key?k=unknown", "api/v1/why?k=unknown", "fetcher?f=x", "output?k=a", "static/0/style.css"]
    {
        assert_eq!(page.get(&format!("/{unknown}")).status, 404, "{unknown}");
    }
    for right in [
        "queue?n=1000",
        "queue?text=&fetcher=f&sort=last%20run&desc=1",
        "tasks?status=failed&sort=no%20column",
        "log?outcome=&fetcher=",
        "search?q=",
        "api/v1/stats?hours=2160&by=fetcher_day",
    ] {
        assert_eq!(page.get(&format!("/{right}")).status, 200, "{right}");
    }
}

/// What a program is given is what the commands print with `--json`.
#[test]
fn programs_get_the_objects_of_the_commands() {
    let (site, _daemon) = Site::running(&[]);
    site.deliver("f", 1, "alpha 1\nbravo 2\nbravado 3\n");
    site.wait_count(3);
    let page = start(&site, &[]);
    let target = "socket";
    for (address, command) in [
        ("queue?n=2", vec!["tasks", "--next", "-t", target, "-n", "2"]),
        ("why?k=alpha", vec!["why", "-t", target, "alpha"]),
        ("log", vec!["log", "-t", target]),
        ("log?outcome=failed&k=alpha", vec!["log", "-t", target, "--failed", "--key", "alpha"]),
        ("stats?by=fetcher", vec!["log", "--sum", "-t", target, "--by", "fetcher"]),
        ("held", vec!["tasks", "--held", "-t", target]),
        ("tasks", vec!["tasks", "-t", target]),
        (
            "tasks?status=waiting&fetcher=f",
            vec!["tasks", "-t", target, "--status", "waiting", "--fetcher", "f"],
        ),
        ("status", vec!["status", "-t", target]),
    ] {
        let command = [command, vec!["--json"]].concat();
        let printed = site.run(&command);
        let given = page.get(&format!("/api/v1/{address}"));
        assert!(given.head.contains("content-type: application/json"), "{}", given.head);
        assert_eq!(given.body, String::from_utf8(printed.stdout).unwrap(), "{address}");
    }
    let status = page.get("/api/v1/status").body;
    assert!(status.contains("\"pending\":3,") && status.contains("\"live\":{"), "{status}");
    let found = page.get("/api/v1/search?q=brav").body;
    let keys = "\"keys\":[{\"key\":\"bravado\",\"last_started\":null,\"exit_code\":null},{\"key\":\"bravo\"";
    assert!(found.contains(keys), "{found}");
    let error = "{\"error\":\"nothing is known of this key\"}\n";
    assert_eq!(page.get("/api/v1/why?k=x").body, error);
    let html = page.get("/search?q=brav").body;
    assert!(
        html.contains(">bravado</a>") && html.contains(">bravo</a>") && !html.contains(">alpha<")
    );
}

/// A listing is sorted by a column, and rows are left out by a text and a fetcher, by the address alone.
#[test]
fn listings_are_arranged() {
    let (site, _daemon) = Site::running(&[]);
    site.deliver("f", 1, "alpha 9\nbravo <8>\ncharlie 7\n");
    site.deliver("g", 1, "delta 8\n");
    site.wait_count(4);
    let page = start(&site, &[]);
    let keys = |asked: &str| -> Vec<String> {
        let html = page.get(&format!("/{asked}")).body;
        let links = html.split("<a href=\"key?k=").skip(1);
        links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    assert_eq!(keys("queue?sort=key"), ["alpha", "bravo", "charlie", "delta"]);
    assert_eq!(keys("queue?sort=payload"), ["charlie", "delta", "alpha", "bravo"]);
    assert_eq!(keys("queue?sort=key&desc=1&text=8"), ["delta", "bravo"]);
    assert_eq!(keys("queue?sort=key&fetcher=f&text=A"), ["alpha", "bravo", "charlie"]);
    let none = page.get("/queue?text=nothing").body;
    assert!(none.contains("No row of this list is like that."), "{none}");
    let shown = page.get("/queue?sort=key&text=8").body;
    for part in [
        "<th scope=\"col\" class=\"\" aria-sort=\"ascending\"><a href=\"queue?text=8&#38;sort=key&#38;desc=1\">Key</a>",
        "<input id=\"text\" name=\"text\" value=\"8\"",
        "<option value=\"key\" selected>Key</option>",
        "data-name=\"Fetcher\">",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// What jobs wrote is shown, of one attempt or of a day, and sent as it is; nothing else of the machine is.
#[test]
fn what_jobs_wrote_is_shown() {
    let (site, _daemon) = Site::serving("a/b 1\n", &[]);
    let logs = site.path("logs");
    let work = ["work", "-t", "socket", "--once", "--log-dir", logs.to_str().unwrap(), "--"];
    let script = "printf '\\033[31m<b>red</b>\\033[0m'; exit 3";
    assert!(site.run(&[&work[..], &["sh", "-c", script]].concat()).status.success());
    let page = start(&site, &["--output", &format!("{}/{{day}}/{{key}}.log", logs.display())]);
    let first = page.get("/").body;
    let link = links(&first).into_iter().find(|link| link.starts_with("output?")).unwrap();
    let shown = page.get(&format!("/{link}")).body;
    assert!(shown.contains("&#60;b&#62;red&#60;/b&#62;\n=== "), "{shown}");
    assert!(shown.contains("exit code 3"), "{shown}");
    let raw = page.get("/output?k=a%2Fb&day=latest&raw=1");
    assert!(raw.head.contains("content-type: text/plain; charset=utf-8"), "{}", raw.head);
    assert!(raw.body.contains("\u{1b}[31m<b>red</b>"), "{}", raw.body);
    assert_eq!(page.get("/output?k=a%2Fb&day=2026-01-01").status, 404);
    assert_eq!(page.get("/output?k=..%2F..%2Fx").status, 404);
    let without = start(&site, &[]);
    assert_eq!(without.get(&format!("/{link}")).status, 404);
    assert!(!without.get("/").body.contains("output?"));
}

/// What a job in flight has written so far is a step away from the first page and from its key's; and where keys wait and nobody has
/// one, it is asked whether a worker runs.
#[test]
fn what_a_job_in_flight_has_written() {
    let (site, _daemon) = Site::serving("alpha 1\n", &[]);
    let (logs, end) = (site.path("logs"), site.path("end"));
    let page = start(&site, &["--output", &format!("{}/{{day}}/{{key}}.log", logs.display())]);
    assert!(page.get("/").body.contains("does a worker run?"));
    let script = format!("echo begun; until [ -e {} ]; do sleep 0.05; done", end.display());
    let mut worker = site.program();
    worker.args(["work", "-t", "socket", "--once", "--log-dir"]).arg(&logs);
    let mut worker = worker.args(["--", "sh", "-c", &script]).spawn().unwrap();
    let link_on = |address: &str| {
        links(&page.get(address).body).into_iter().find(|link| link.starts_with("output?"))
    };
    wait_until("its output is there", || {
        link_on("/").is_some_and(|link| page.get(&format!("/{link}")).body.contains("begun"))
    });
    assert_eq!(link_on("/key?k=alpha"), link_on("/"));
    std::fs::write(end, "").unwrap();
    assert!(worker.wait().unwrap().success());
}

/// `make demo` shows pages with work on them. Ctrl-C ends it soon, whatever jobs are under way, and nothing is left however often
/// it is pressed.
#[test]
fn the_demonstration_is_shown() {
    let place = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    // A job takes as many seconds as its file has bytes.
    for (name, bytes) in [("one", 1), ("two", 2), ("long", 29)] {
        std::fs::write(files.path().join(name), "x".repeat(bytes)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/audit-files/demo.sh");
    let mut demo = Command::new("sh")
        .arg(script)
        .env("SHIFTBOSS", env!("CARGO_BIN_EXE_shiftboss"))
        .env("AUDIT_DIRECTORY", files.path())
        .env("DEMO_LISTEN", "127.0.0.1:0")
        .env("DEMO_PACE", "30")
        .process_group(0)
        .env("TMPDIR", place.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(demo.stdout.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    let address = line.strip_prefix("Look at http://").unwrap().trim_end_matches('/').to_owned();
    wait_until("there is work on the page", || {
        crate::web::get(&address, "/log").contains("href=\"output?k=")
    });
    wait_until("nothing but the long job is left", || {
        let status = crate::web::get(&address, "/api/v1/status");
        status.contains("\"pending\":0,") && status.contains("\"in_flight\":1,")
    });
    assert!(crate::web::get(&address, "/").contains("href=\"fetcher?f=programs\""));
    let (pid, pressed) = (rustix::process::Pid::from_child(&demo), Instant::now());
    let mut ended = None;
    wait_until("the demonstration ends", || {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::INT);
        ended = demo.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(130));
    assert!(pressed.elapsed() < Duration::from_secs(5), "{:?}", pressed.elapsed());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

/// A page that the browser has is not sent again.
#[test]
fn a_page_is_sent_once() {
    let (site, _daemon) = Site::running(&[]);
    let page = start(&site, &[]);
    let ask = |tag: &str| {
        page.raw(&format!(
            "GET /queue HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIf-None-Match: {tag}\r\n\r\n"
        ))
    };
    let is_unchanged = || {
        let first = ask("\"0\"");
        let tag =
            first.head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        assert_eq!(first.status, 200);
        // A minute may have gone by.
        let second = ask(&tag);
        second.status == 304 && second.body.is_empty()
    };
    wait_until("it is not sent again", is_unchanged);
}
