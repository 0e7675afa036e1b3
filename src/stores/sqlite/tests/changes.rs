//! Whether the store notices that another process wrote.

use std::future::poll_fn;
use std::time::Duration;

use shiftboss_actors::store::Store;
use shiftboss_queue::operation::Complete;
use tokio::time::timeout;

use super::support::{FAIR, Site, key, run};

/// Whether a change is reported within a second.
async fn changes(site: &mut Site) -> bool {
    let told = poll_fn(|task| site.store.poll_changed(task));
    timeout(Duration::from_secs(1), told).await.is_ok()
}

/// Each edit by others is reported once, the daemon's own changes are not.
#[tokio::test(start_paused = true)]
async fn edits_by_others_are_told() {
    let mut site = Site::new(FAIR);
    assert!(changes(&mut site).await, "what was there before");
    assert!(!changes(&mut site).await);
    for now in 1..3 {
        site.list(&run("f", now), &["a"]);
        assert!(site.next(now).is_some());
        site.ask(now, Complete { key: key("a"), exit_code: 0 }).unwrap();
        assert!(!changes(&mut site).await, "its own");
        site.edit("INSERT OR REPLACE INTO log VALUES ('b', 1, 1, 0)");
        assert!(changes(&mut site).await && !changes(&mut site).await);
        site.edit("UPDATE log SET exit_code = 1 WHERE attr_path = 'b'");
        // It first sees them in a transaction of its own.
        assert_eq!(site.next(now), None);
        assert!(changes(&mut site).await && !changes(&mut site).await);
    }
}
