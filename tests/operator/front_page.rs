//! What the first page tells at once, and where it leads: what is in the queue and not handed out, and fetchers that fail.

use crate::common::said::said;
use crate::common::{Client, Site, wait_until};
use crate::web::{Page, start};

fn assert_listed(page: &Page, list: &str, key: &str, reason: &str) {
    let link = format!("<a href=\"{list}\">which");
    wait_until("the first page tells of it", || page.get("/").body.contains(&link));
    let list = page.get(&format!("/{list}")).body;
    assert!(list.contains(&format!(">{key}</a>")) && list.contains(reason), "{list}");
}

/// Each is told on the first page, which leads to its list, and there is the reason.
#[test]
fn what_is_set_apart_is_listed() {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), "[job_retry]\nfirst = '2h'\nmax_delay = '5h'\n")
        .unwrap();
    let _daemon = site.start_with(&["--config", "rules.toml", "--max-expired-leases", "1"]);
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_count(1);
    let page = start(&site, &[]);
    assert!(!page.get("/").body.contains("tasks?status="));
    site.next_key("READY");
    site.next_key("DONE alpha 124");
    assert_listed(&page, "tasks?status=delayed", "alpha", "timeout; retry 1 in ");
    said(&site, &["hold", "--reason", "it is broken", "bravo"]);
    assert_listed(&page, "held", "bravo", "it is broken");
    site.write("g.1.txt", "charlie 0 1\n");
    site.wait_count(2);
    let mut lost = Client::opted_in(&site, "HELLO 2 lost 1");
    assert!(lost.ask("READY").contains(" charlie "));
    assert_listed(&page, "tasks?status=dead_letter", "charlie", "1 leases expired");
}

/// Which fetcher failed, though it never had a list, and how; its page says where the rest is.
#[test]
fn a_fetcher_that_failed_is_told() {
    let site = Site::new();
    let fetcher = "[[fetcher]]\nname = 'links'\ncommand = ['sh', '-c', 'exit 3']\nevery = '9h'\n";
    std::fs::write(site.path("fetchers.toml"), fetcher).unwrap();
    let _daemon = site.start_with(&["--config", "fetchers.toml"]);
    let page = start(&site, &[]);
    let told = "<p class=\"fault\">Error: fetcher links: the command ended with exit code 3 (";
    wait_until("the first page tells of it", || page.get("/").body.contains(told));
    let of_it = page.get("/fetcher?f=links").body;
    assert!(
        of_it.contains("It has no list.") && of_it.contains("is in the daemon's log"),
        "{of_it}"
    );
}
