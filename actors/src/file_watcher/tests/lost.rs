//! The input directory is lost: when the directory in its place is taken, and what is withdrawn then.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{MINUTE, Site, filetime_back, input, real};
use crate::directory::Directory;
use crate::file_watcher::stranger::Stranger;
use crate::file_watcher::{AcceptInput, Accepted, CatchUpBarrier, Input};
use crate::testing::{MockStore, until};
use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::BeginDeletion;

/// A watcher that has read a list of `alpha`, and whose directory was then moved away and made again.
async fn replaced() -> Site {
    tokio::time::pause();
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt", "alpha 1\n");
    until("the list is complete", || site.is_complete("f")).await;
    fs::rename(&site.path, site.home.path().join("moved")).unwrap();
    fs::create_dir(&site.path).unwrap();
    until("the loss is told", || site.calls("lost yes") == 1).await;
    site
}

/// Another directory in the place of a lost one is not read, and withdraws nothing, before it has held lists for a
/// minute; an empty one is never taken. Workers' requests do not change that, nor do removals from the directory that
/// was moved away.
#[actix::test]
async fn another_directory_is_taken_after_a_minute_with_lists() {
    let site = replaced().await;
    fs::remove_file(site.home.path().join("moved/f.1.txt")).unwrap();
    sleep(10 * MINUTE).await;
    site.watcher.send(CatchUpBarrier).await.unwrap();
    assert_eq!(site.calls("delete"), 0);
    site.write("g.1.txt", "bravo 1\n");
    let began = Instant::now();
    until("it is read", || site.keys() == ["alpha", "bravo"]).await;
    assert!(began.elapsed() >= MINUTE, "{:?}", began.elapsed());
    assert_eq!(site.calls("lost yes"), 1);
    until("what it does not hold is withdrawn", || site.calls("delete f.1") > 0).await;
}

/// An operator need not wait; and if nothing is lost there is nothing to accept.
#[actix::test]
async fn another_directory_is_accepted() {
    let site = replaced().await;
    site.write("g.1.txt", "bravo 1\n");
    let began = Instant::now();
    assert_eq!(site.watcher.send(AcceptInput).await.unwrap(), Ok(Accepted::Taken));
    until("it is read", || site.keys() == ["alpha", "bravo"]).await;
    assert!(began.elapsed() < MINUTE);
    assert_eq!(site.watcher.send(AcceptInput).await.unwrap(), Ok(Accepted::NotLost));
    fs::remove_dir_all(&site.path).unwrap();
    let refused = site.watcher.send(AcceptInput).await.unwrap().unwrap_err();
    assert!(refused.contains("cannot be opened"), "{refused}");
}

/// The known directory is recognised when it is back, whatever was in its place.
#[actix::test]
async fn the_known_directory_is_taken_at_once() {
    let site = replaced().await;
    site.write("g.1.txt", "bravo 1\n");
    sleep(MINUTE / 2).await;
    fs::rename(&site.path, site.home.path().join("other")).unwrap();
    fs::rename(site.home.path().join("moved"), &site.path).unwrap();
    site.write("h.1.txt", "charlie 1\n");
    until("it is read", || site.keys() == ["alpha", "charlie"]).await;
    assert_eq!(site.calls("delete"), 0);
}

/// A copy of the directory is the known one: it holds all that was read.
#[actix::test]
async fn a_copy_of_the_directory_is_known() {
    let site = replaced().await;
    let began = Instant::now();
    // Not what was read, though it has the same name.
    site.write("f.1.txt", "ALPHA 1\n");
    sleep(MINUTE / 2).await;
    assert_eq!(site.calls("lost no"), 1, "at the start");
    fs::copy(site.home.path().join("moved/f.1.txt"), site.path.join("f.1.txt")).unwrap();
    until("it is back", || site.calls("lost no") == 2).await;
    assert!(began.elapsed() < MINUTE);
    assert_eq!(site.calls("delete"), 0);
}

/// A start on a directory other than the known one: nothing is withdrawn before it is accepted, which a setting can do,
/// too. Without lists in the store there is nothing to lose.
#[actix::test]
async fn a_start_on_another_directory() {
    tokio::time::pause();
    for (accept, lists) in [(false, true), (true, true), (false, false)] {
        let before = Site::started(MockStore::default(), real()).await;
        if lists {
            before.write("f.1.txt", "alpha 1\n");
            until("the list is complete", || before.is_complete("f")).await;
        }
        let known = Some(Directory::open(&before.path).unwrap().identity());
        let site = before.moved(Input { known, accept, ..input(PathBuf::new()) }).await;
        sleep(10 * MINUTE).await;
        let lost = !accept && lists;
        assert_eq!(site.calls("lost yes"), usize::from(lost), "{accept} {lists}");
        assert_eq!(site.calls("delete") > 0, lists && !lost, "{accept} {lists}");
    }
}

/// Before the start another daemon's directory took the place of the one that was locked: it is left alone
/// as long as that daemon has it.
#[actix::test]
async fn a_directory_that_was_replaced_before_the_start() {
    tokio::time::pause();
    let (home, locked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let another_daemons = Directory::open(home.path()).unwrap();
    assert!(another_daemons.lock());
    let locked = Some(Directory::open(locked.path()).unwrap().identity());
    let input = Input { locked, accept: true, ..input(home.path().to_owned()) };
    let site = Site::over(home, input, MockStore::default(), real()).start().await;
    site.write("f.1.txt", "alpha 1\n");
    sleep(MINUTE).await;
    assert_eq!((site.calls("lost yes"), site.keys()), (1, vec![]));
    drop(another_daemons);
    until("it is read", || site.keys() == ["alpha"]).await;
}

/// A withdrawal that was begun before the start goes on, though the directory is lost.
#[actix::test]
async fn a_withdrawal_that_was_begun_goes_on_without_the_directory() {
    tokio::time::pause();
    let before = Site::started(MockStore::default(), real()).await;
    before.write("f.1.txt", "alpha 1\n");
    before.write("g.1.txt", "bravo 1\n");
    until("both are complete", || before.is_complete("f") && before.is_complete("g")).await;
    before.mock.others_do(BeginDeletion(Run { fetcher: "f".into(), started: 1 }).into());
    let known = Some(Directory::open(&before.path).unwrap().identity());
    let site = before.moved(Input { known, ..input(PathBuf::new()) }).await;
    until("the first is deleted", || site.calls("delete f.1") == 1).await;
    assert_eq!(site.calls("delete g.1"), 0);
}

/// What counts as a change: a list that comes, goes or is written to, but not one that grows.
#[actix::test]
async fn a_directory_rests_while_no_list_changes() {
    tokio::time::pause();
    let home = TempDir::new().unwrap();
    let mut stranger = None;
    let mut rests = async |change: &dyn Fn(&Path)| {
        change(home.path());
        let directory = Directory::open(home.path()).unwrap();
        let first = Stranger::seen(&directory, stranger.take());
        sleep(MINUTE / 2).await;
        let second = Stranger::seen(&directory, Some(first));
        let rested = second.has_rested(MINUTE);
        stranger = Some(second);
        rested
    };
    let write = |name: &'static str| {
        move |home: &Path| {
            fs::write(home.join(name), name.repeat(2)).unwrap();
            filetime_back(&home.join(name));
        }
    };
    assert!(!rests(&write("notes")).await && !rests(&|_| ()).await && !rests(&|_| ()).await);
    assert!(!rests(&write("f.1.txt.part")).await);
    let append = |home: &Path| fs::write(home.join("f.1.txt.part"), "more and more").unwrap();
    assert!(rests(&append).await, "one that grows may do so");
    assert!(!rests(&write("g.1.txt")).await && rests(&|_| ()).await);
    assert!(!rests(&|home| fs::write(home.join("g.1.txt"), "else").unwrap()).await);
    assert!(rests(&|_| ()).await);
    assert!(!rests(&|home| fs::remove_file(home.join("g.1.txt")).unwrap()).await);
}
