//! The page's lists of what is not handed out though it is in the queue: delayed tasks, dead letters, held keys.

use crate::common::{Client, Site, wait_until};
use crate::said::said;
use crate::web::{Page, start};

fn assert_listed(page: &Page, list: &str, key: &str, reason: &str) {
    let link = format!("<a class=\"key\" href=\"{list}\">");
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
    said(&site, &["hold", "--reason", "it is broken", "socket", "bravo"]);
    assert_listed(&page, "held", "bravo", "it is broken");
    site.write("g.1.txt", "charlie 0 1\n");
    site.wait_count(2);
    let mut lost = Client::connect(&site);
    assert!(lost.ask("HELLO 2 lost 1").starts_with("HELLO 2 "));
    assert!(lost.ask("READY").contains(" charlie "));
    assert_listed(&page, "tasks?status=dead_letter", "charlie", "1 leases expired");
}
