//! The FileWatcherActor and its tails over a mock store and a real directory.

mod deletions;
mod elsewhere;
mod failures;
mod lost;
mod portions;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix::prelude::*;
use tempfile::TempDir;

use super::{CatchUpBarrier, FileWatcherActor, Input, Start, StartTail, start_tail};
use crate::exit_notifier::ExitNotifier;
use crate::storage::StorageActor;
use crate::store::ADDED_ROWS;
use crate::testing::{MockStore, Trouble, until};
use shiftboss_protocol::model::Run;
use shiftboss_queue::error::StoreError;

const MINUTE: Duration = Duration::from_secs(60);

/// Whichever directory is there.
pub fn input(path: PathBuf) -> Input {
    Input {
        path,
        known: None,
        locked: None,
        accept: false,
        accept_after: MINUTE,
        retry_elsewhere: MINUTE,
    }
}

/// A watcher of a new directory, over a mock store.
struct Site {
    home: TempDir,
    path: PathBuf,
    mock: MockStore,
    storage: Addr<StorageActor>,
    watcher: Addr<FileWatcherActor>,
}

impl Site {
    fn new(mock: MockStore, start: StartTail) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("input");
        fs::create_dir(&path).unwrap();
        Self::over(home, input(path), mock, start)
    }

    fn over(home: TempDir, input: Input, mock: MockStore, start: StartTail) -> Self {
        let (storage, _) = mock.start();
        let exits = tokio::sync::mpsc::unbounded_channel().0;
        let exit_notifier = ExitNotifier { name: "the watcher", exits };
        let path = input.path.clone();
        let watcher =
            FileWatcherActor::new(input, storage.clone(), ADDED_ROWS, start, exit_notifier);
        let watcher = watcher.start();
        Self { home, path, mock, storage, watcher }
    }

    async fn started(mock: MockStore, start: StartTail) -> Self {
        Self::new(mock, start).start().await
    }

    async fn start(self) -> Self {
        self.watcher.send(Start).await.unwrap().unwrap();
        self
    }

    /// A watcher over the same store, with `told` as its input but for the path: that of a new, empty directory.
    async fn moved(&self, told: Input) -> Self {
        let home = tempfile::tempdir().unwrap();
        let input = Input { path: home.path().to_owned(), ..told };
        Self::over(home, input, self.mock.clone(), real()).start().await
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path.join(name), text).unwrap();
    }

    fn keys(&self) -> Vec<String> {
        self.mock.inside().added.clone()
    }

    fn calls(&self, name: &str) -> usize {
        self.mock.calls().iter().filter(|call| call.starts_with(name)).count()
    }

    /// The runs that were registered, in order.
    fn registered(&self) -> Vec<String> {
        let calls = self.mock.calls().into_iter();
        calls.filter_map(|call| Some(call.strip_prefix("register ")?.to_owned())).collect()
    }

    fn is_complete(&self, fetcher: &str) -> bool {
        let run = Run { fetcher: fetcher.into(), started: 1 };
        self.mock.runs().iter().any(|stored| stored.run == run && stored.complete)
    }
}

fn real() -> StartTail {
    Box::new(start_tail)
}

fn rejected() -> Trouble {
    Trouble::Error(StoreError::Rejected("no".to_owned()))
}

#[actix::test]
async fn batches_are_bounded_and_the_last_completes() {
    let site = Site::new(MockStore::default(), real());
    let lines: String = (0..10_000).map(|i| format!("key{i} 1\n")).collect();
    site.write("f.1.txt", &lines);
    filetime_back(&site.path.join("f.1.txt"));
    let site = site.start().await;
    until("all is stored", || site.is_complete("f")).await;
    assert_eq!(site.keys().len(), 10_000);
    assert!(site.calls("add") > 3, "{}", site.calls("add"));
}

/// Makes a file look old, as if last written long ago.
fn filetime_back(path: &Path) {
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
}

#[actix::test]
async fn a_look_finds_what_was_written_before() {
    let site = Site::started(MockStore::default(), real()).await;
    for round in 0..100 {
        site.write(&format!("f{round}.1.txt.part"), &format!("key{round} 1\n"));
        site.watcher.send(CatchUpBarrier).await.unwrap();
        assert!(site.keys().contains(&format!("key{round}")), "round {round}");
    }
}

/// A line that is cut off before its end does not become the beginning of the next one.
#[actix::test]
async fn a_line_that_is_cut_off_is_forgotten() {
    let site = Site::started(MockStore::default(), real()).await;
    let look = async || _ = site.watcher.send(CatchUpBarrier).await.unwrap();
    site.write("f.1.txt.part", "alpha 1\nbra");
    look().await;
    let mut options = fs::File::options();
    let mut file = options.append(true).open(site.path.join("f.1.txt.part")).unwrap();
    file.set_len(8).unwrap();
    look().await;
    file.write_all(b"charlie 1\n").unwrap();
    look().await;
    assert_eq!(site.keys(), ["alpha", "charlie"]);
}

/// More files than the kernel queues events for: those with events are registered before the look at everything.
#[actix::test]
async fn a_look_at_everything_waits_for_registrations() {
    let site = Site::started(MockStore::default(), real()).await;
    let files = 5_600;
    for file in 0..files {
        site.write(&format!("f{file}.1.txt"), "\n");
    }
    site.watcher.send(CatchUpBarrier).await.unwrap();
    until("all are complete", || {
        let inside = site.mock.inside();
        inside.kept().header.runs.values().filter(|run| run.complete).count() == files
    })
    .await;
    site.watcher.send(CatchUpBarrier).await.expect("the watcher lives");
}

#[actix::test]
async fn a_new_run_is_registered_before_the_old_one_goes() {
    let site = Site::started(MockStore::default(), real()).await;
    site.write("f.1.txt", "alpha 1\n");
    until("the first run is complete", || site.is_complete("f")).await;
    site.write("f.2.txt", "alpha 2\n");
    fs::remove_file(site.path.join("f.1.txt")).unwrap();
    until("the first run is deleted", || site.calls("delete f.1") == 1).await;
    let calls = site.mock.calls();
    let place = |call: &str| calls.iter().position(|known| known == call).unwrap();
    assert!(place("register f.2") < place("delete f.1"));
}

/// A note that status shows is sent to the store until it is stored.
#[actix::test]
async fn notes_are_repeated_until_they_are_stored() {
    tokio::time::pause();
    let site = Site::started(MockStore::default(), real()).await;
    (0..2).for_each(|_| site.mock.trouble("reject", Trouble::busy()));
    site.write("a.b.txt", "alpha 1\n");
    until("the name is noted", || !site.mock.rejected().is_empty()).await;
    site.mock.trouble("forget rejected", Trouble::busy());
    fs::remove_file(site.path.join("a.b.txt")).unwrap();
    until("the note is taken back", || site.mock.rejected().is_empty()).await;
    site.mock.trouble("lost", Trouble::busy());
    fs::remove_dir(&site.path).unwrap();
    until("the loss is told again", || site.calls("lost yes") == 2).await;
    site.mock.trouble("lost", Trouble::full());
    fs::create_dir(&site.path).unwrap();
    until("the return is told again", || site.calls("lost no") == 3).await;
}

/// A run that the store rejects, such as one that is being deleted, is tried again by itself: the others of the same
/// message are known at once.
#[actix::test]
async fn a_rejected_run_keeps_no_other_waiting() {
    tokio::time::pause();
    let site = Site::new(MockStore::default(), real());
    for run in ["f.1.txt.part", "g.1.txt.part", "h.1.txt.part"] {
        site.write(run, &format!("{run} 1\n"));
    }
    // All three are rejected; then only the first one is.
    (0..4).for_each(|_| site.mock.trouble("register", rejected()));
    let site = site.start().await;
    until("all are read", || site.keys().len() == 3).await;
    assert_eq!(site.registered(), ["f.1", "g.1", "h.1", "f.1", "g.1", "h.1", "f.1"]);
}
