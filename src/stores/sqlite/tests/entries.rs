//! Entries of spools: accepted once, whatever happens, and durable before they leave their spool.

use shiftboss_actors::store::{Added, EntryId, SpoolEntry, StoreError};
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, options};
use super::tasks::task;
use crate::stores::sqlite::Options;

fn entry(name: &str, inode: u64, payload: &str) -> SpoolEntry {
    let id = EntryId { spool: "s".into(), name: name.into(), inode, born: 0, checksum: u64::MAX };
    SpoolEntry { id, task: task("alpha", payload) }
}

/// An entry is accepted once, until its removal from the spool is certain; another one may have its name.
#[test]
fn an_entry_is_accepted_once() {
    let few = Options { max_single_tasks: 2, ..options(FAIR) };
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &few);
    let first = [entry("e", 1, "1")];
    assert_eq!(site.store.accept(&first, 1_000), Ok(vec![Added::Added]));
    let mut site = site.restart(&few, false);
    assert_eq!(site.store.accept(&first, 1_000), Ok(vec![Added::Known]));
    let (attempt, _) = site.take_task(10);
    site.end_task(attempt, 0);
    assert_eq!(site.store.accept(&first, 1_000), Ok(vec![Added::Known]), "done already");
    assert_eq!(site.singles(), [""; 0]);
    let more = [entry("e", 2, "2"), entry("f", 3, "3"), entry("g", 4, "4"), entry("h", 5, "3")];
    let accepted = site.store.accept(&more, 1_000).unwrap();
    assert_eq!(accepted, [Added::Added, Added::Added, Added::Full, Added::Known]);
    let known = site.store.accepted().unwrap();
    assert_eq!(known, [&first[0], &more[0], &more[1], &more[3]].map(|entry| entry.id.clone()));
    for id in &known[..3] {
        site.commit(|store| store.forget_accepted(id)).unwrap();
    }
    assert_eq!(site.store.accepted().unwrap(), known[3..]);
    assert_eq!(site.singles(), ["2 waiting", "3 waiting"]);
}

/// A file system gives a new file the inode of one that was removed: the time of its birth tells them apart.
#[test]
fn an_inode_is_used_again() {
    let mut site = Site::new(FAIR);
    let first = [entry("e", 1, "1")];
    let mut second = first.clone();
    second[0].id.born = 2_000_000_000_000_000_001;
    assert_eq!(site.store.accept(&first, 1_000), Ok(vec![Added::Added]));
    let (attempt, _) = site.take_task(10);
    site.end_task(attempt, 0);
    assert_eq!(site.store.accept(&second, 1_000), Ok(vec![Added::Added]));
    assert_eq!(site.store.accept(&second, 1_000), Ok(vec![Added::Known]));
    assert_eq!(site.singles(), ["1 waiting"]);
    site.commit(|store| store.forget_accepted(&first[0].id)).unwrap();
    assert_eq!(site.store.accepted().unwrap(), [second[0].id.clone()]);
}

/// A failure accepts none of them, and leaves no transaction open.
#[test]
fn what_fails_accepts_nothing() {
    let busy = Options { busy_timeout: std::time::Duration::from_millis(1), ..options(FAIR) };
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &busy);
    site.edit("BEGIN IMMEDIATE");
    let refused = site.store.accept(&[entry("e", 1, "1")], 1_000);
    assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
    site.edit("ROLLBACK");
    site.edit("DROP TABLE shiftboss_accepted");
    assert!(site.store.accept(&[entry("e", 1, "1")], 1_000).is_err());
    assert!(!site.store.in_transaction());
    assert_eq!(site.singles(), [""; 0]);
}

/// An entry leaves its spool once it is accepted: the commit is synced also where others are not.
#[test]
fn accepting_is_synced_whatever_the_durability() {
    let mut site = Site::new(FAIR);
    let synchronous = |site: &Site| {
        let sql = "PRAGMA synchronous";
        site.store.connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(synchronous(&site), 1, "normal: no sync at a commit");
    // Temporary triggers are the only ones that fire on the daemon's connection.
    let watch = "CREATE TEMP TABLE seen (synchronous);
        CREATE TEMP TRIGGER watch AFTER INSERT ON main.shiftboss_accepted
        BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END";
    site.store.connection.execute_batch(watch).unwrap();
    assert_eq!(site.store.accept(&[entry("e", 1, "1")], 1_000), Ok(vec![Added::Added]));
    let seen = "SELECT group_concat(synchronous) FROM seen";
    let seen: String = site.store.connection.query_row(seen, [], |row| row.get(0)).unwrap();
    assert_eq!((&*seen, synchronous(&site)), ("2", 1), "full, and normal again");
}
