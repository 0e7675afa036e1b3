//! What can be changed on a page: by whom, from where, and what the daemon does.

use crate::common::{Client, Site, job_of, wait_until};
use crate::web::{Answer, Page, start};

const TOKEN: &str = "0123456789abcdef";
/// `ann` and the token.
pub const ANN: &str = "Authorization: Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY=\r\n";
/// `ann` and another one.
pub const WRONG: &str = "Authorization: Basic YW5uOjAxMjM0NTY3ODlhYmNkZWc=\r\n";
const ACTIONS: [&str; 7] = ["pause", "resume", "retry", "hold", "unhold", "bump", "cancel"];

pub fn with_token(site: &Site, options: &[&str]) -> Page {
    let file = site.path("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    start(site, &[&["--token-file", file.to_str().unwrap()], options].concat())
}

fn post(page: &Page, action: &str, head: &str, body: &str) -> Answer {
    page.raw(&format!(
        "POST /actions/{action} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

fn location(answer: &Answer) -> &str {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("location: "));
    line.unwrap_or_default()
}

/// A pause is noticed by a worker, a resume, too; a key that failed is handed out again.
#[test]
fn orders_are_carried_out() {
    let (site, daemon) = Site::serving("alpha 1\nbravo 2\n", &[]);
    let page = with_token(&site, &[]);
    assert!(page.get("/").body.contains("href=\"pause\""));
    let asked = page.get("/pause").body;
    assert!(asked.contains("action=\"actions/pause\""), "{asked}");
    let paused = post(&page, "pause", ANN, "");
    assert_eq!((paused.status, location(&paused)), (303, "../"), "{paused:?}");
    assert_eq!(site.next_key("READY"), None);
    let first = page.get("/").body;
    assert!(first.contains("Paused: nothing is handed out"), "at once: {first}");
    assert!(first.contains("action=\"actions/resume\""));
    assert_eq!(post(&page, "resume", ANN, "").status, 303);
    let key = site.next_key("READY").unwrap();
    let other = site.next_key(&format!("DONE {key} 1")).unwrap();
    assert_eq!(site.next_key(&format!("DONE {other} 0")), None);
    assert!(page.get(&format!("/key?k={key}")).body.contains("action=\"actions/retry\""));
    let again = post(&page, "retry", ANN, &format!("k={key}"));
    assert_eq!((again.status, location(&again)), (303, &*format!("../key?k={key}")));
    assert_eq!(site.next_key("READY").as_ref(), Some(&key));
    assert_eq!(post(&page, "retry", ANN, "k=").status, 400);
    assert_eq!(post(&page, "retry", ANN, "").status, 400);
    assert_eq!(post(&page, "retry", ANN, &format!("k={}", "k".repeat(9_000))).status, 413);
    daemon.stop();
    assert_eq!(post(&page, "pause", ANN, "").status, 503);
    if site.server().is_none() {
        wait_until("there are no buttons", || !page.get("/").body.contains("href=\"pause\""));
    }
}

/// A key is held for as long as was asked for, in the name of who asked, and shown with the others; then it is not.
#[test]
fn keys_are_held() {
    let (site, _daemon) = Site::serving("alpha 1\n", &[]);
    let page = with_token(&site, &[]);
    assert!(page.get("/key?k=alpha").body.contains("href=\"hold?k=alpha\""));
    let asked = page.get("/hold?k=alpha").body;
    assert!(asked.contains("action=\"actions/hold\""), "{asked}");
    let held = post(&page, "hold", ANN, "k=alpha&for=86400&reason=it+is+%3Cb%3Ebroken");
    assert_eq!((held.status, location(&held)), (303, "../key?k=alpha"), "{held:?}");
    assert_eq!(site.next_key("READY"), None);
    let key = page.get("/key?k=alpha").body;
    assert!(key.contains("action=\"actions/unhold\"") && !key.contains("hold?k="), "{key}");
    let all = page.get("/held").body;
    assert!(
        all.contains("it is &#60;b&#62;broken") && all.contains("data-name=\"By\">ann</td>"),
        "{all}"
    );
    assert!(page.get("/").body.contains("href=\"held\""));
    assert!(page.get("/api/v1/held?n=1").body.contains("\"by\":\"ann\""));
    assert_eq!(post(&page, "retry", ANN, "k=alpha").status, 409);
    assert_eq!(post(&page, "unhold", ANN, "k=alpha").status, 303);
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    assert!(page.get("/held").body.contains("No key is held."));
    let long = "r".repeat(1_001);
    for wrong in
        ["k=", "k=a&for=soon", "k=a&for=-1", "k=a&reason=%0A", &format!("k=a&reason={long}")]
    {
        assert_eq!(post(&page, "hold", ANN, wrong).status, 400, "{wrong}");
    }
}

/// Groups are listed, each leads to what waits for it, and from there it is held, and let go.
#[test]
fn groups_are_held() {
    let site = Site::new();
    site.write("f.1.txt", "http://a.test/1 -\nhttp://b.test/1 -\n");
    std::fs::write(site.path("rules.toml"), "[[group]]\nname = 'host'\nby = 'host'\n").unwrap();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    site.wait_count(2);
    let page = with_token(&site, &[]);
    assert!(page.get("/").body.contains("href=\"groups\""));
    let waiting = "tasks?status=waiting&#38;group=host%3Aa%2Etest";
    let listed = page.get("/groups").body;
    assert!(listed.contains(waiting) && listed.contains("host:b.test"), "{listed}");
    let tasks = page.get("/tasks?status=waiting&group=host:a.test").body;
    assert!(tasks.contains("http://a.test/1") && !tasks.contains("http://b.test/1"), "{tasks}");
    assert!(tasks.contains("href=\"hold?g=host%3Aa%2Etest\""), "{tasks}");
    let asked = page.get("/hold?g=host:a.test").body;
    assert!(asked.contains("action=\"actions/unhold\"") && asked.contains("name=\"g\""), "{asked}");
    let held = post(&page, "hold", ANN, "g=host%3Aa.test&for=3600&reason=down");
    assert_eq!(location(&held), "../tasks?status=waiting&group=host%3aa%2etest", "{held:?}");
    assert!(page.get("/groups").body.contains("held by ann: down"));
    assert!(
        page.get(&format!("/{}", waiting.replace("&#38;", "&")))
            .body
            .contains("its group opens in")
    );
    assert_eq!(site.next_key("READY").as_deref(), Some("http://b.test/1"));
    assert_eq!(post(&page, "unhold", ANN, "g=host:a.test").status, 303);
    assert_eq!(site.next_key("READY").as_deref(), Some("http://a.test/1"));
    assert_eq!(post(&page, "hold", ANN, "g=a%20b").status, 400);
    assert_eq!(post(&page, "hold", ANN, "g=other:a").status, 409);
}

/// A key is bumped, and the page says so.
#[test]
fn keys_are_bumped() {
    let (site, _daemon) = Site::serving("alpha 1\nbravo 2\n", &[]);
    let page = with_token(&site, &[]);
    assert!(page.get("/key?k=alpha").body.contains("action=\"actions/bump\""));
    for key in ["bravo", "alpha"] {
        let bumped = post(&page, "bump", ANN, &format!("k={key}"));
        assert_eq!(location(&bumped), format!("../key?k={key}"), "{bumped:?}");
    }
    let key = page.get("/key?k=alpha").body;
    assert!(key.contains("by ann") && !key.contains("actions/bump"), "{key}");
    assert!(page.get("/queue").body.contains(", ahead"));
    assert_eq!(site.next_key("READY").as_deref(), Some("bravo"));
    assert_eq!(post(&page, "bump", ANN, "k=").status, 400);
    assert_eq!(post(&page, "bump", ANN, "k=charlie").status, 409);
}

/// A running job is cancelled, and the page says so; a classic worker's cannot be.
#[test]
fn running_jobs_are_cancelled() {
    let (site, _daemon) = Site::serving("alpha 1\nbravo 2\n", &[]);
    let page = with_token(&site, &[]);
    let mut worker = Client::leased(&site, 60);
    let (attempt, key) = job_of(&worker.ask("READY"));
    let classic = site.next_key("READY").unwrap();
    let button = |key: &str| page.get(&format!("/key?k={key}")).body.contains("actions/cancel");
    assert_eq!((button(&key), button(&classic)), (true, false));
    let cancelled = post(&page, "cancel", ANN, &format!("k={key}"));
    assert_eq!(location(&cancelled), format!("../key?k={key}"), "{cancelled:?}");
    assert!(!button(&key));
    assert_eq!(worker.ask(&format!("BEAT {attempt}")), "STOP\n");
    assert_eq!(post(&page, "cancel", ANN, &format!("k={classic}")).status, 409);
}

/// Without the token nothing is done, and a wrong one is answered late; nor is it from another page.
#[test]
fn who_may_order() {
    let (site, _daemon) = Site::running(&[]);
    let page = with_token(&site, &[]);
    for action in ACTIONS {
        let refused = post(&page, action, "", "k=a");
        assert_eq!(refused.status, 401, "{action}");
        assert!(refused.head.contains("www-authenticate: basic realm="), "{}", refused.head);
        let begun = std::time::Instant::now();
        assert_eq!(post(&page, action, WRONG, "k=a").status, 401);
        assert!(begun.elapsed().as_secs() >= 1, "it is answered at once");
        for site in ["Sec-Fetch-Site: cross-site\r\n", "Origin: https://evil.example\r\n"] {
            assert_eq!(post(&page, action, &format!("{ANN}{site}"), "k=a").status, 403, "{site}");
        }
        assert_eq!(page.get(&format!("/actions/{action}")).status, 404, "it is no page");
    }
    assert!(!page.get("/").body.contains("Paused"));
    let own = "Origin: http://localhost\r\n";
    assert_eq!(post(&page, "pause", &format!("{ANN}{own}"), "").status, 303);
    let open = start(&site, &[]);
    assert_eq!(open.get("/").status, 200);
    assert_eq!(post(&open, "resume", ANN, "").status, 403);
    assert!(!open.get("/").body.contains("actions/"));
}

/// With `--token-for all` only health is told to everybody.
#[test]
fn the_token_may_be_needed_for_all() {
    let (site, _daemon) = Site::running(&[]);
    let page = with_token(&site, &["--token-for", "all"]);
    for address in ["/", "/queue", "/metrics", "/api/v1/status", "/nothing"] {
        assert_eq!(page.get(address).status, 401, "{address}");
    }
    assert_eq!(page.get("/healthz").status, 200);
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{ANN}\r\n");
    assert_eq!(page.raw(&request).status, 200);
}
