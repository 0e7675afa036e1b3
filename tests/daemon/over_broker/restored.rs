//! A backup of the queue is restored under relays that go on: a beat tells a relay, and its lists are compared once a second.

use std::fs;

use super::{Installation, PATIENCE};
use crate::common::said::said;
use crate::common::{Peer, wait_within};

impl Installation {
    /// The daemon is stopped, and goes on with what the queue was when `change` began.
    fn restore_after(self, change: impl FnOnce(&Self)) -> Self {
        said(&self.site, &["backup", "copy"]);
        change(&self);
        let away = self.stop();
        fs::rename(away.site.path("copy"), away.site.database()).unwrap();
        away.restart()
    }

    fn wait_queued(&self, keys: &[&str]) {
        let queued = "SELECT attr_path FROM queue ORDER BY 1";
        wait_within(PATIENCE, &format!("{keys:?}"), || self.site.sql(queued) == keys);
    }
}

/// An installation with a relay that has a list which grows.
fn with_a_list() -> (Installation, Peer) {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.append("f.1.txt.part", "alpha 1\n");
    installation.wait_queued(&["alpha"]);
    (installation, relay)
}

/// A list that grows goes on from the position that is stored: what the backup has not is read again.
#[test]
fn a_list_that_grows_goes_back() {
    let (installation, relay) = with_a_list();
    // Bravo is of another range than alpha and charlie, which are of two more.
    let installation = installation.restore_after(|installation| {
        relay.site.append("f.1.txt.part", "bravo 1\n");
        installation.wait_queued(&["alpha", "bravo"]);
    });
    relay.site.append("f.1.txt.part", "charlie 1\n");
    installation.wait_queued(&["alpha", "bravo", "charlie"]);
    relay.site.append("f.1.txt.part", "bravo 2\ndelta 1\n");
    installation.wait_queued(&["alpha", "bravo", "charlie", "delta"]);
    installation.site.wait_sql("SELECT payload FROM queue WHERE attr_path = 'bravo'", &["2"]);
}

/// Lists that rest are compared, too: one that the backup lacks is added, one that has gone since is deleted, and one that became
/// complete is so again.
#[test]
fn lists_that_rest_are_compared() {
    let (installation, relay) = with_a_list();
    relay.site.write("g.1.txt", "golf 1\n");
    installation.wait_queued(&["alpha", "golf"]);
    let installation = installation.restore_after(|installation| {
        relay.site.append("f.1.txt.part", "bravo 1\n");
        relay.site.rename("f.1.txt.part", "f.1.txt");
        relay.site.write("h.1.txt", "hotel 1\n");
        relay.site.remove("g.1.txt");
        installation.wait_queued(&["alpha", "bravo", "hotel"]);
        let complete = "SELECT count(*) FROM fetcher_runs WHERE is_complete AND fetcher_id > 0";
        installation.site.wait_sql(complete, &["2"]);
    });
    installation.wait_queued(&["alpha", "bravo", "hotel"]);
    let complete = "SELECT count(*) FROM fetcher_runs WHERE is_complete AND fetcher_id > 0";
    installation.site.wait_sql(complete, &["2"]);
}
