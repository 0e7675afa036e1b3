//! Long files, whose lines are gathered before they are stored, and stores that stall meanwhile.

use std::time::Duration;

use tokio::time::Instant;

use super::{CatchUpBarrier, Site, filetime_back, real};
use crate::file_watcher::CaughtUp;
use crate::testing::{MockStore, Trouble, until};

/// A tail waits for a store that is full, which does not count as its failure. Looks are answered at once that there is
/// more; when the store has room again, all of it is stored.
#[actix::test]
async fn a_look_does_not_wait_for_a_full_store() {
    tokio::time::pause();
    let site = Site::new(MockStore::default(), real());
    (0..20).for_each(|_| site.mock.trouble("add", Trouble::full()));
    site.write("f.1.txt.part", "alpha 1\n");
    let site = site.start().await;
    until("the store stalls", || site.calls("add") == 2).await;
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(site.watcher.send(CatchUpBarrier).await.unwrap(), CaughtUp::Some);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(site.calls("add"), 2);
    until("it is stored", || site.keys() == ["alpha"]).await;
    assert_eq!(site.registered(), ["f.1"], "not restarted");
    assert!(site.mock.rejected().is_empty());
    assert_eq!(site.watcher.send(CatchUpBarrier).await.unwrap(), CaughtUp::All);
}

/// Faulty lines take memory, too: a file of nothing else is stored in several portions.
#[actix::test]
async fn a_file_of_faulty_lines_is_not_gathered_whole() {
    let site = Site::new(MockStore::default(), real());
    site.write("f.1.txt", &"faulty\n".repeat(700_000));
    filetime_back(&site.path.join("f.1.txt"));
    let site = site.start().await;
    until("all is read", || site.is_complete("f")).await;
    assert_eq!((site.calls("add f.1 0"), site.calls("add")), (3, 3));
}
