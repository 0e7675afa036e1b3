//! What is on the disk when it is answered.

use shiftboss_protocol::model::Row;
use shiftboss_queue::operation::{AcceptEntries, Added, EntryId, SpoolEntry};

use super::support::{FAIR, Site, key};

/// An entry leaves its spool once it is accepted: the commit is synced also where others are not.
#[test]
fn accepting_is_synced_whatever_the_durability() {
    let mut site = Site::new(FAIR);
    let synchronous = |site: &Site| {
        let connection = site.store.engine.store().connection();
        connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(synchronous(&site), 1, "normal: no sync at a commit");
    let (spool, name) = ("spool".into(), "entry".into());
    let id = EntryId { spool, name, inode: 1, born: 1, checksum: 1 };
    let entry = SpoolEntry { id, task: Row { key: key("a"), payload: "p".to_owned() } };
    let watch = "CREATE TEMP TABLE seen (synchronous);
        CREATE TEMP TRIGGER watch AFTER INSERT ON main.tasks
        BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END";
    site.store.engine.store().connection().execute_batch(watch).unwrap();
    assert_eq!(site.ask(1_000, AcceptEntries(vec![entry])), Ok(vec![Added::Added(1)]));
    let seen = "SELECT group_concat(synchronous) FROM seen";
    let connection = site.store.engine.store().connection();
    let seen: String = connection.query_row(seen, [], |row| row.get(0)).unwrap();
    assert_eq!((&*seen, synchronous(&site)), ("2", 1), "full, and normal again");
}
