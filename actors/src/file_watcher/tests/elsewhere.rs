//! Fetchers that belong to another daemon.

use std::fs;

use super::{Site, real};
use crate::testing::{MockStore, Trouble, until};
use shiftboss_protocol::model::Key;

const WHY: &str = "the fetcher f belongs to the daemon alpha";

/// Another daemon has the fetcher f.
fn elsewhere() -> MockStore {
    let mock = MockStore::default();
    mock.inside().elsewhere.insert("f".to_owned(), WHY.to_owned());
    mock
}

/// Its files are rejected, once, under their present name; no look waits for them; and a file that was not read leaves
/// nothing behind when it goes.
#[actix::test]
async fn a_fetcher_of_another_daemon_is_rejected() {
    tokio::time::pause();
    let site = Site::started(elsewhere(), real()).await;
    site.write("f.1.txt.part", "alpha 1\n");
    site.write("g.1.txt", "bravo 2\n");
    until("the other one is read", || site.keys() == ["bravo"]).await;
    until("it is rejected", || site.mock.rejected() == [format!("f.1.txt.part: {WHY}")]).await;
    fs::rename(site.path.join("f.1.txt.part"), site.path.join("f.1.txt")).unwrap();
    until("it has its new name", || site.mock.rejected() == [format!("f.1.txt: {WHY}")]).await;
    let looked = site.watcher.send(super::CatchUpBarrier).await.unwrap();
    assert_eq!(looked, super::super::CaughtUp::All);
    fs::remove_file(site.path.join("f.1.txt")).unwrap();
    until("it is not rejected any longer", || site.mock.rejected().is_empty()).await;
    assert_eq!((site.calls("reject"), site.calls("delete")), (2, 0));
}

/// It is tried again automatically, with all files of the fetcher together; so it is, too, when a new file comes.
#[actix::test]
async fn a_fetcher_is_had_when_it_is_free() {
    tokio::time::pause();
    let site = Site::new(elsewhere(), real());
    site.write("f.1.txt", "alpha 1\n");
    site.write("f.2.txt", "bravo 2\n");
    let site = site.start().await;
    until("they are rejected", || site.mock.rejected().len() == 2).await;
    site.write("f.3.txt", "charlie 3\n");
    until("a third one, too", || site.mock.rejected().len() == 3).await;
    assert_eq!(site.registered()[..5], ["f.1", "f.2", "f.1", "f.2", "f.3"]);
    site.mock.inside().elsewhere.clear();
    until("they are read", || site.keys().len() == 3).await;
    until("they are not rejected any longer", || site.mock.rejected().is_empty()).await;
}

/// The store is restored from a backup: what it no longer has is read again from its position, whether the tail waits
/// for more or has ended; and runs deleted since then are deleted again.
#[actix::test]
async fn runs_go_back_with_the_store() {
    tokio::time::pause();
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt.part", "alpha 1\n");
    site.write("g.1.txt.part", "bravo 1\n");
    site.write("h.1.txt", "hotel 1\n");
    until("all are read", || site.keys().len() == 3 && site.is_complete("h")).await;
    let backup = site.mock.inside().backup();
    site.write("f.1.txt.part", "alpha 1\ncharlie 1\n");
    site.write("g.1.txt", "bravo 1\n");
    fs::remove_file(site.path.join("g.1.txt.part")).unwrap();
    fs::remove_file(site.path.join("h.1.txt")).unwrap();
    let is_on = || {
        let inside = site.mock.inside();
        let kept = inside.kept();
        kept.ids.contains_key(&Key::stored("charlie")) && kept.header.runs.len() == 2
    };
    until("they have changed", || is_on() && site.is_complete("g")).await;
    site.mock.restore(backup);
    until("they are as they were", || is_on() && site.is_complete("g")).await;
}

/// A new file comes while others of its fetcher wait for a store that was busy: they are registered together, because
/// that may take the fetcher over.
#[actix::test]
async fn those_that_could_not_be_registered_come_along() {
    tokio::time::pause();
    let site = Site::new(MockStore::default(), real());
    site.mock.trouble("register", Trouble::busy());
    site.write("f.1.txt", "alpha 1\n");
    site.write("f.2.txt", "bravo 2\n");
    let site = site.start().await;
    until("the store is busy", || site.calls("register") == 1).await;
    site.write("f.3.txt", "charlie 3\n");
    site.watcher.send(super::CatchUpBarrier).await.unwrap();
    assert_eq!(site.registered(), ["f.1", "f.1", "f.2", "f.3"]);
}

/// A daemon that was taken for dead finds that another one owns its fetcher: it rejects the files, whatever it had read
/// of them, and writes nothing.
#[actix::test]
async fn a_fetcher_that_was_taken_over_is_given_up() {
    tokio::time::pause();
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt", "alpha 1\n");
    site.write("f.2.txt.part", "bravo 2\n");
    site.write("g.1.txt", "charlie 3\n");
    until("all are read", || site.keys().len() == 3 && site.is_complete("g")).await;
    until("the first one is complete", || site.is_complete("f")).await;
    site.mock.lose_fetcher("f", WHY);
    until("it is given up", || site.mock.rejected().len() == 2).await;
    site.write("f.2.txt.part", "bravo 2\ndelta 4\n");
    site.write("g.2.txt", "echo 5\n");
    until("the others go on", || site.keys().contains(&"echo".to_owned())).await;
    assert!(!site.keys().contains(&"delta".to_owned()));
    assert_eq!(site.calls("delete"), 0);
    // It is lost once more, and comes back.
    site.mock.inside().elsewhere.clear();
    until("it is read anew", || site.keys().contains(&"delta".to_owned())).await;
    until("it is not rejected any longer", || site.mock.rejected().is_empty()).await;
}
