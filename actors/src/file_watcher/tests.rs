//! The FileWatcherActor and its tails over a mock store and a real directory.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use actix::prelude::*;
use tempfile::TempDir;

use super::{FileWatcherActor, Look, Start, StartTail, StorageLinks, TailLink, start_tail};
use crate::clock::ManualClock;
use crate::file_tail::{CatchUp, CaughtUp, Changed, StopTail, TailSeed};
use crate::model::Run;
use crate::storage::StorageActor;
use crate::store::StoreError;
use crate::testing::{MockStore, Trouble, until};
use crate::vital::Vital;

/// A watcher of a new directory, over a mock store.
struct Site {
    directory: TempDir,
    mock: MockStore,
    watcher: Addr<FileWatcherActor>,
}

impl Site {
    fn new(mock: MockStore, start: StartTail) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (vital, _end) = Vital::new();
        let clock = Box::new(ManualClock::at(100));
        let (drained, _) = tokio::sync::oneshot::channel();
        let storage = StorageActor::new(Box::new(mock.clone()), clock, vital, drained).start();
        let links = StorageLinks::to(&storage);
        let (vital, _end) = Vital::new();
        let path = directory.path().to_owned();
        let watcher = FileWatcherActor::new(path, links, start, vital).start();
        Self { directory, mock, watcher }
    }

    async fn started(mock: MockStore, start: StartTail) -> Self {
        let site = Self::new(mock, start);
        site.watcher.send(Start).await.unwrap().unwrap();
        site
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn keys(&self) -> Vec<String> {
        self.mock.inside().rows.iter().map(|(_, key)| key.clone()).collect()
    }

    fn calls(&self, name: &str) -> usize {
        self.mock.calls().iter().filter(|call| call.starts_with(name)).count()
    }

    fn is_complete(&self, fetcher: &str) -> bool {
        let run = Run { fetcher: fetcher.into(), started: 1 };
        self.mock.inside().runs.get(&run).is_some_and(|run| run.complete)
    }
}

/// A tail that panics when it is first asked anything.
struct Bomb {
    _seed: TailSeed,
}

impl Actor for Bomb {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        panic!("a tail panics");
    }
}

impl Handler<Changed> for Bomb {
    type Result = ();

    fn handle(&mut self, _: Changed, _: &mut Self::Context) {}
}

impl Handler<CatchUp> for Bomb {
    type Result = CaughtUp;

    fn handle(&mut self, _: CatchUp, _: &mut Self::Context) -> CaughtUp {
        CaughtUp { more: false }
    }
}

impl Handler<StopTail> for Bomb {
    type Result = ();

    fn handle(&mut self, _: StopTail, _: &mut Self::Context) {}
}

/// Starts tails of which those of fetcher `bad` panic, the first `times`.
fn panicking(times: u32) -> (StartTail, Rc<Cell<u32>>) {
    let started = Rc::new(Cell::new(0));
    let count = Rc::clone(&started);
    let start = move |seed: TailSeed| {
        if &*seed.reader.run().fetcher != "bad" || count.get() >= times {
            return start_tail(seed);
        }
        count.set(count.get() + 1);
        let bomb = Bomb { _seed: seed }.start();
        TailLink {
            changed: bomb.clone().recipient(),
            catch_up: bomb.clone().recipient(),
            stop: bomb.recipient(),
        }
    };
    (Box::new(start), started)
}

fn real() -> StartTail {
    Box::new(start_tail)
}

fn rejected() -> Trouble {
    Trouble::Error(StoreError::Rejected("no".to_owned()))
}

/// A tail that fails is started again, later each time, and goes on from the last stored position.
#[actix::test]
async fn a_tail_is_restarted_after_an_error() {
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt.part", "alpha 1\n");
    until("the first line is stored", || site.keys() == ["alpha"]).await;
    site.mock.trouble("add", rejected());
    site.mock.trouble("add", rejected());
    site.write("f.1.txt.part", "alpha 1\nbravo 2\n");
    until("the second line is stored", || site.keys() == ["alpha", "bravo"]).await;
    assert_eq!(site.calls("register f.1"), 3, "once, and once for each restart");
    assert!(site.mock.inside().aside.is_empty());
}

/// A tail that panics is started again, and the run is read to its end.
#[actix::test]
async fn a_tail_is_restarted_after_a_panic() {
    let (start, panics) = panicking(2);
    let site = Site::started(MockStore::default(), start).await;
    site.write("bad.1.txt", "alpha 1\nbravo 2\n");
    until("all is stored", || site.keys() == ["alpha", "bravo"]).await;
    assert_eq!(panics.get(), 2);
    until("the run is complete", || site.is_complete("bad")).await;
}

/// A file that keeps failing is set aside, visibly; everything else goes on; and it is tried again
/// when it changes.
#[actix::test]
async fn a_file_that_keeps_failing_is_set_aside() {
    let (start, panics) = panicking(6);
    let site = Site::started(MockStore::default(), start).await;
    site.write("bad.1.txt", "alpha 1\n");
    site.write("good.1.txt", "bravo 2\n");
    until("the good one is stored", || site.keys() == ["bravo"]).await;
    until("the bad one is set aside", || !site.mock.inside().aside.is_empty()).await;
    assert_eq!(panics.get(), 6, "one start and five restarts");
    assert!(site.mock.inside().aside[0].contains("panicked"));
    site.write("good.1.txt", "bravo 2\ncharlie 3\n");
    until("the good one goes on", || site.keys() == ["bravo", "charlie"]).await;
    site.write("bad.1.txt", "alpha 1\ndelta 4\n");
    until("the bad one is read after all", || site.keys().contains(&"delta".to_owned())).await;
    until("and no longer set aside", || site.mock.inside().aside.is_empty()).await;
}

/// A file that was set aside is tried again from time to time, though it did not change.
#[actix::test]
async fn a_file_set_aside_is_tried_again() {
    tokio::time::pause();
    let (start, panics) = panicking(7);
    let site = Site::started(MockStore::default(), start).await;
    site.write("bad.1.txt", "alpha 1\n");
    until("the file is read after all", || site.keys() == ["alpha"]).await;
    assert_eq!(panics.get(), 7, "set aside after six, and tried twice more");
}

/// A file that fails again when it is tried again was set aside all the time, and is noted once;
/// the note goes when the file is read, also when it may still grow, and when it is gone.
#[actix::test]
async fn a_file_that_fails_again_stays_set_aside() {
    tokio::time::pause();
    for gone in [false, true] {
        let (start, panics) = panicking(10);
        let site = Site::started(MockStore::default(), start).await;
        site.write("bad.1.txt.part", "alpha 1\n");
        until("it was tried again", || panics.get() == 8).await;
        assert_eq!((site.calls("aside"), site.calls("clear")), (1, 0));
        if gone {
            fs::remove_file(site.directory.path().join("bad.1.txt.part")).unwrap();
        } else {
            until("it is read after all", || site.keys() == ["alpha"]).await;
        }
        until("it is not set aside any longer", || site.mock.inside().aside.is_empty()).await;
        assert_eq!((site.calls("aside"), site.calls("clear")), (1, 1));
    }
}

/// A store that is full or busy is waited for: that is no failure of the tail.
#[actix::test]
async fn a_full_store_is_waited_for() {
    let site = Site::started(MockStore::default(), real()).await;
    for _ in 0..8 {
        site.mock.trouble("add", Trouble::Error(StoreError::Full("disk".to_owned())));
    }
    site.write("f.1.txt", "alpha 1\n");
    until("the line is stored", || site.keys() == ["alpha"]).await;
    assert_eq!(site.calls("register"), 1, "not restarted");
    assert!(site.mock.inside().aside.is_empty());
}

/// Rows come in bounded batches, and only the last one completes the run.
#[actix::test]
async fn batches_are_bounded_and_the_last_completes() {
    let site = Site::new(MockStore::default(), real());
    let lines: String = (0..10_000).map(|i| format!("key{i} 1\n")).collect();
    site.write("f.1.txt", &lines);
    filetime_back(&site.directory.path().join("f.1.txt"));
    site.watcher.send(Start).await.unwrap().unwrap();
    until("all is stored", || site.is_complete("f")).await;
    assert_eq!(site.keys().len(), 10_000);
    assert!(site.calls("add") > 3, "{}", site.calls("add"));
}

/// Makes a file look old, as one that its writer left long ago.
fn filetime_back(path: &Path) {
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
}

/// A look stores what was written before it.
#[actix::test]
async fn a_look_finds_what_was_written_before() {
    let site = Site::started(MockStore::default(), real()).await;
    for round in 0..100 {
        site.write(&format!("f{round}.1.txt.part"), &format!("key{round} 1\n"));
        site.watcher.send(Look).await.unwrap();
        assert!(site.keys().contains(&format!("key{round}")), "round {round}");
    }
}

/// A run that replaces another is registered before that one is deleted.
#[actix::test]
async fn a_new_run_is_registered_before_the_old_one_goes() {
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt", "alpha 1\n");
    until("the first run is complete", || site.is_complete("f")).await;
    site.write("f.2.txt", "alpha 2\n");
    fs::remove_file(site.directory.path().join("f.1.txt")).unwrap();
    until("the first run is deleted", || site.calls("delete f.1") == 3).await;
    let calls = site.mock.calls();
    let place = |call: &str| calls.iter().position(|known| known == call).unwrap();
    assert!(place("register f.2") < place("delete f.1"));
}

/// A directory that goes is told, waited for, and looked through when it is back.
#[actix::test]
async fn a_lost_directory_is_found_again() {
    let site = Site::started(MockStore::default(), real()).await;
    fs::remove_dir(site.directory.path()).unwrap();
    until("the loss is told", || site.calls("lost yes") == 1).await;
    fs::create_dir(site.directory.path()).unwrap();
    site.write("f.1.txt.part", "alpha 1\n");
    until("its file is read", || site.keys() == ["alpha"]).await;
    assert_eq!(site.calls("lost no"), 2, "at the start, and when it was back");
}

/// What status is to show is told to the store until it is stored.
#[actix::test]
async fn notes_are_repeated_until_they_are_stored() {
    tokio::time::pause();
    let site = Site::started(MockStore::default(), real()).await;
    let busy = || Trouble::Error(StoreError::Busy("backup".to_owned()));
    site.mock.trouble("aside", busy());
    site.mock.trouble("aside", busy());
    site.write("a.b.txt", "alpha 1\n");
    until("the name is noted", || !site.mock.inside().aside.is_empty()).await;
    site.mock.trouble("clear", busy());
    fs::remove_file(site.directory.path().join("a.b.txt")).unwrap();
    until("the note is taken back", || site.mock.inside().aside.is_empty()).await;
    site.mock.trouble("lost", busy());
    fs::remove_dir(site.directory.path()).unwrap();
    until("the loss is told again", || site.calls("lost yes") == 2).await;
    site.mock.trouble("lost", Trouble::EndOfTransaction(StoreError::Full("disk".to_owned())));
    fs::create_dir(site.directory.path()).unwrap();
    until("the return is told again", || site.calls("lost no") == 3).await;
}

/// A run that the store rejects, as one that is being deleted, is tried again by itself: the others
/// of the same message are known at once.
#[actix::test]
async fn a_rejected_run_keeps_no_other_waiting() {
    tokio::time::pause();
    let site = Site::new(MockStore::default(), real());
    for run in ["f.1.txt.part", "g.1.txt.part", "h.1.txt.part"] {
        site.write(run, &format!("{run} 1\n"));
    }
    // All three are rejected; then only the first one is.
    (0..4).for_each(|_| site.mock.trouble("register", rejected()));
    site.watcher.send(Start).await.unwrap().unwrap();
    until("all are read", || site.keys().len() == 3).await;
    let registered = site.mock.calls();
    let registered: Vec<_> =
        registered.iter().filter_map(|c| c.strip_prefix("register ")).collect();
    assert_eq!(registered, ["f.1", "g.1", "h.1", "f.1", "g.1", "h.1", "f.1"]);
}
