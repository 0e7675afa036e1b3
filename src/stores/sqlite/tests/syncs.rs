//! What is on the disk when a request is answered.

use shiftboss_protocol::model::Row;
use shiftboss_queue::operation::{AddTask, Added, Lane, Operation, Relayed};

use super::support::{FAIR, Site, key};

/// A client that adds a task forgets it when that is answered: so the commit is synced even if others are not.
#[test]
fn adding_once_is_synced_whatever_the_durability() {
    let mut site = Site::new(FAIR);
    let synchronous = |site: &Site| {
        let connection = site.store.engine.store().connection();
        connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(synchronous(&site), 1, "normal: no sync at a commit");
    let watch = "CREATE TEMP TABLE seen (synchronous);
        CREATE TEMP TRIGGER watch AFTER INSERT ON main.tasks
        BEGIN INSERT INTO seen SELECT synchronous FROM pragma_synchronous; END";
    site.store.engine.store().connection().execute_batch(watch).unwrap();
    for (number, id) in [(1, Some("id".into())), (2, None)] {
        let task = Row { key: key("a"), payload: number.to_string() };
        assert_eq!(site.ask(1_000, AddTask { task, id }), Ok(Added::Added(number)));
    }
    let task = Row { key: key("a"), payload: "3".to_owned() };
    let operations = vec![AddTask { task, id: Some("other".into()) }.into()];
    let relayed = Relayed { epoch: 1, lane: Lane::Jobs, number: 1, operations };
    assert!(Operation::from(relayed).is_synced(), "a relay's, too");
    let seen = "SELECT group_concat(synchronous) FROM seen";
    let connection = site.store.engine.store().connection();
    let seen: String = connection.query_row(seen, [], |row| row.get(0)).unwrap();
    assert_eq!((&*seen, synchronous(&site)), ("2,1", 1), "full, and normal again");
}
