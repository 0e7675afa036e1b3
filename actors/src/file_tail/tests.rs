//! A tail over a mock store and a real file.

use std::fs;

use super::*;
use crate::directory::Directory;
use crate::testing::MockStore;
use shiftboss_protocol::model::Run;

fn lines(name: &str, count: usize) -> String {
    (0..count).map(|line| format!("{name}{line} 1\n")).collect()
}

/// Another file replaces one whose lines are being gathered: what was read of the first one is stored separately, and
/// then all of the other one.
#[actix::test]
async fn a_file_that_is_replaced_is_another_portion() {
    let home = tempfile::tempdir().unwrap();
    let [file, new] = ["f.1.txt", "new"].map(|name| home.path().join(name));
    fs::write(&file, lines("old", 5_000)).unwrap();
    fs::write(&new, lines("new", 300)).unwrap();
    let (mock, run) = (MockStore::default(), Run { fetcher: "f".into(), started: 1 });
    mock.add_run(&run, 0);
    let (storage, _) = mock.start();
    let directory = Rc::new(Directory::open(home.path()).unwrap());
    let reader = RunReader::new(directory, mock.runs().remove(0));
    let shared = Rc::new(Shared::new(crate::store::ADDED_ROWS));
    let link = TailLink::new(Target { growing_name: false, complete: true });
    let tail = Tail::new(reader, storage, Rc::clone(&shared), link);
    let ended = actix::spawn(tail.follow());
    while shared.gathered.get() == 0 {
        yield_now().await;
    }
    fs::rename(&new, &file).unwrap();
    ended.await.unwrap();
    assert_eq!(shared.gathered.get(), 0);
    let keys: Vec<String> = mock.inside().added.iter().map(|key| key[..3].to_owned()).collect();
    let (old, new) = keys.split_at(keys.len() - 300);
    assert!(!old.is_empty() && old.len() < 5_000 && old.iter().all(|key| key == "old"));
    assert!(new.iter().all(|key| key == "new"));
}
