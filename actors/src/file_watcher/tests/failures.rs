//! Tails that fail: started again, and their files rejected when they keep failing.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;

use super::{Site, real, rejected};
use crate::file_tail::Tail;
use crate::file_watcher::{StartTail, start_tail};
use crate::testing::{MockStore, until};

/// Starts tails; the first `times` of fetcher `bad` panic.
fn panicking(times: u32) -> (StartTail, Rc<Cell<u32>>) {
    let started = Rc::new(Cell::new(0));
    let count = Rc::clone(&started);
    let start = move |tail: Tail| {
        if &*tail.reader.run().fetcher != "bad" || count.get() >= times {
            return start_tail(tail);
        }
        count.set(count.get() + 1);
        actix::spawn(async { panic!("a tail panics") })
    };
    (Box::new(start), started)
}

/// A tail that fails is started again, later each time, and goes on from the last stored position.
#[actix::test]
async fn a_tail_is_restarted_after_an_error() {
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt.part", "alpha 1\n");
    until("the first line is stored", || site.keys() == ["alpha"]).await;
    (0..2).for_each(|_| site.mock.trouble("add", rejected()));
    site.write("f.1.txt.part", "alpha 1\nbravo 2\n");
    until("the second line is stored", || site.keys() == ["alpha", "bravo"]).await;
    assert_eq!(site.calls("register f.1"), 3, "once, and once for each restart");
    assert!(site.mock.rejected().is_empty());
}

/// A file is not rejected, however often it fails, if something of it is stored each time.
#[actix::test]
async fn a_file_that_gets_on_is_not_rejected() {
    tokio::time::pause();
    let site = Site::started(MockStore::default(), real()).await;
    let mut text = String::new();
    for round in 0..8 {
        site.mock.trouble("add", rejected());
        text += &format!("key{round} 1\n");
        site.write("f.1.txt.part", &text);
        until("it is stored after all", || site.keys().len() == round + 1).await;
    }
    assert_eq!(site.calls("reject"), 0);
}

/// A tail that panics is started again. A file that keeps failing is rejected, visibly; everything else goes on; and it is tried again
/// when it changes, and read to its end.
#[actix::test]
async fn a_file_that_keeps_failing_is_rejected() {
    let (start, panics) = panicking(6);
    let site = Site::started(MockStore::default(), start).await;
    site.write("bad.1.txt", "alpha 1\n");
    site.write("good.1.txt", "bravo 2\n");
    until("the good one is stored", || site.keys() == ["bravo"]).await;
    until("the bad one is rejected", || !site.mock.rejected().is_empty()).await;
    assert_eq!(panics.get(), 6, "one start and five restarts");
    assert!(site.mock.rejected()[0].contains("panicked"));
    site.write("good.1.txt", "bravo 2\ncharlie 3\n");
    until("the good one goes on", || site.keys() == ["bravo", "charlie"]).await;
    site.write("bad.1.txt", "alpha 1\ndelta 4\n");
    until("the bad one is read after all", || site.keys().contains(&"delta".to_owned())).await;
    until("to its end", || site.mock.rejected().is_empty() && site.is_complete("bad")).await;
}

/// A rejected file is tried again from time to time, even if it did not change. If it fails again it has been rejected
/// all along, and is noted once; the note goes when the file is read, even if it may still grow, and when it is gone.
#[actix::test]
async fn a_file_that_fails_again_stays_rejected() {
    tokio::time::pause();
    for gone in [false, true] {
        let (start, panics) = panicking(10);
        let site = Site::started(MockStore::default(), start).await;
        site.write("bad.1.txt.part", "alpha 1\n");
        until("it was tried again", || panics.get() == 8).await;
        assert_eq!((site.calls("reject"), site.calls("forget rejected")), (1, 0));
        if gone {
            fs::remove_file(site.path.join("bad.1.txt.part")).unwrap();
        } else {
            until("it is read after all", || site.keys() == ["alpha"]).await;
        }
        until("it is not rejected any longer", || site.mock.rejected().is_empty()).await;
        assert_eq!((site.calls("reject"), site.calls("forget rejected")), (1, 1));
    }
}
