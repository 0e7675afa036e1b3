//! Databases of the reference taken over in place, given back, and taken again (spec 6).

use rusqlite::Connection;
use shiftboss_actors::testing::one_by_one::OneByOne;
use tempfile::TempDir;

use super::support::{FAIR, Site, options, rows_of, run};
use crate::stores::sqlite::Policy;
use crate::stores::sqlite::schema::VERSION;

/// The reference's schema of version 1 or 2, in its own quoting.
fn reference_schema(version: i64) -> String {
    let jitter = if version == 2 { "`order_jitter` `integer`," } else { "" };
    let order = if version == 2 { "`order_jitter`," } else { "" };
    format!(
        "CREATE TABLE `fetchers` (`fetcher_id` `integer` PRIMARY KEY AUTOINCREMENT, `name` `text` NOT NULL UNIQUE) STRICT;
         CREATE TABLE `fetcher_runs` (`fetcher_id` `integer` NOT NULL REFERENCES `fetchers` (`fetcher_id`),
            `run_started` `integer` NOT NULL, `is_complete` `integer` NOT NULL DEFAULT 0,
            PRIMARY KEY (`fetcher_id`, `run_started`)) STRICT;
         CREATE INDEX `fetcher_run_started_index` ON `fetcher_runs` (`run_started`, `fetcher_id`);
         CREATE TRIGGER `fetcher_runs_delete` AFTER DELETE ON `fetcher_runs` BEGIN
            DELETE FROM `fetchers` WHERE `fetcher_id` = OLD.`fetcher_id` AND
                (SELECT `fetcher_id` FROM `fetcher_runs` WHERE `fetcher_id` = OLD.`fetcher_id`) IS NULL; END;
         CREATE TABLE `queue` (`fetcher_id` `integer` NOT NULL, `fetcher_run_started` `integer` NOT NULL,
            `attr_path` `text` NOT NULL, `payload` `text` NOT NULL, `is_dequeued` `integer` NOT NULL DEFAULT 0,
            `last_started` `integer`, {jitter}
            PRIMARY KEY (`fetcher_run_started`, `fetcher_id`, `attr_path`),
            FOREIGN KEY (`fetcher_id`, `fetcher_run_started`)
                REFERENCES `fetcher_runs` (`fetcher_id`, `run_started`) ON DELETE CASCADE) STRICT;
         CREATE INDEX `queue_order_index` ON `queue`
            (`last_started` ASC, {order} `attr_path`, `fetcher_id`, `fetcher_run_started` DESC);
         CREATE INDEX `queue_attr_path_index` ON `queue` (`attr_path` ASC);
         CREATE TABLE `log` (`attr_path` `text` PRIMARY KEY, `started` `integer` NOT NULL,
            `finished` `integer`, `exit_code` `integer`) STRICT, WITHOUT ROWID;
         CREATE TRIGGER `queue_insert_started` AFTER INSERT ON `queue` BEGIN
            UPDATE `queue` SET `last_started` = `started` FROM `log`
            WHERE `log`.`attr_path` = NEW.`attr_path` AND `queue`.`rowid` = NEW.`rowid`; END;
         CREATE TRIGGER `log_insert_started` AFTER INSERT ON `log` BEGIN
            UPDATE `queue` SET `last_started` = NEW.`started` WHERE `queue`.`attr_path` = NEW.`attr_path`; END;
         CREATE TRIGGER `log_update_started` AFTER UPDATE OF `started` ON `log` BEGIN
            UPDATE `queue` SET `last_started` = NEW.`started` WHERE `queue`.`attr_path` = NEW.`attr_path`; END;
         PRAGMA user_version = {version};"
    )
}

/// What the reference does to its database, in statements of its kind.
struct Reference(Connection);

impl Reference {
    fn open(directory: &TempDir) -> Self {
        let connection = Connection::open(directory.path().join("state.db")).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
        Self(connection)
    }

    fn new(directory: &TempDir, version: i64) -> Self {
        let reference = Self::open(directory);
        reference.0.execute_batch(&reference_schema(version)).unwrap();
        reference
    }

    fn upsert_run(&self, name: &str, run: i64, complete: bool) {
        self.0.execute("INSERT OR IGNORE INTO `fetchers` (`name`) VALUES (?1)", [name]).unwrap();
        let sql = "INSERT INTO `fetcher_runs` (`fetcher_id`, `run_started`, `is_complete`)
            VALUES ((SELECT `fetcher_id` FROM `fetchers` WHERE `name` = ?1), ?2, ?3)
            ON CONFLICT DO UPDATE SET `is_complete` = excluded.`is_complete`";
        self.0.execute(sql, (name, run, complete)).unwrap();
    }

    fn enqueue(&self, name: &str, run: i64, key: &str, payload: &str) {
        let sql = "INSERT INTO `queue` (`fetcher_id`, `fetcher_run_started`, `attr_path`, `payload`, `order_jitter`)
            SELECT `fetcher_id`, ?2, ?3, ?4, ?5 FROM `fetchers` WHERE `name` = ?1
            ON CONFLICT DO UPDATE SET `payload` = excluded.`payload`";
        let jitter = shiftboss_protocol::model::jitter(key);
        self.0.execute(sql, (name, run, key, payload, jitter)).unwrap();
    }

    fn dispatch(&self, name: &str, key: &str, now: i64) {
        let sql = "UPDATE `queue` SET `is_dequeued` = 1 WHERE `attr_path` = ?2 AND `fetcher_id` =
            (SELECT `fetcher_id` FROM `fetchers` WHERE `name` = ?1)";
        self.0.execute(sql, (name, key)).unwrap();
        let sql = "INSERT INTO `log` (`attr_path`, `started`) VALUES (?1, ?2)
            ON CONFLICT DO UPDATE SET `started` = excluded.`started`, `finished` = NULL, `exit_code` = NULL";
        self.0.execute(sql, (key, now)).unwrap();
    }

    fn finish(&self, key: &str, now: i64) {
        let sql = "UPDATE `log` SET `finished` = ?2, `exit_code` = 0 WHERE `attr_path` = ?1";
        self.0.execute(sql, (key, now)).unwrap();
    }

    fn delete_run(&self, name: &str, run: i64) {
        let sql = "DELETE FROM `fetcher_runs` WHERE `run_started` = ?2 AND `fetcher_id` =
            (SELECT `fetcher_id` FROM `fetchers` WHERE `name` = ?1)";
        self.0.execute(sql, (name, run)).unwrap();
    }
}

const PUBLIC: &str = "SELECT 'q', fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued, last_started FROM queue
    UNION ALL SELECT 'l', attr_path, started, finished, exit_code, '', '' FROM log
    UNION ALL SELECT 'r', fetcher_id, run_started, is_complete, '', '', '' FROM fetcher_runs
    UNION ALL SELECT 'f', fetcher_id, name, '', '', '', '' FROM fetchers ORDER BY 1, 2, 3, 4";

/// A version 2 database in full use: two fetchers, old and new runs, jobs waiting, out and done.
fn in_use(directory: &TempDir) -> Vec<String> {
    let reference = Reference::new(directory, 2);
    reference.upsert_run("f", 1, true);
    for key in ["alpha", "bravo", "charlie"] {
        reference.enqueue("f", 1, key, "old");
    }
    reference.dispatch("f", "alpha", 100);
    reference.finish("alpha", 110);
    reference.dispatch("f", "bravo", 200);
    reference.upsert_run("f", 2, false);
    reference.enqueue("f", 2, "alpha", "new");
    reference.upsert_run("g", 1, true);
    reference.enqueue("g", 1, "bravo", "g's");
    rows_of(&reference.0, PUBLIC)
}

/// Rows, flags, log, ids and order of a version 2 database are kept.
#[test]
fn version_2_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let before = in_use(&directory);
    let mut site = Site::in_directory(directory, FAIR);
    assert_eq!(site.rows(PUBLIC), before);
    assert_eq!(site.rows("PRAGMA user_version"), [VERSION.to_string()]);
    assert_eq!(
        site.rows("SELECT rows, pending FROM shiftboss_runs ORDER BY 1 DESC"),
        ["3|1", "1|1", "1|1"]
    );
    assert_eq!(site.next(300).as_deref(), Some("charlie old"));
    assert_eq!(site.next(300).as_deref(), Some("alpha new"));
    assert_eq!(site.next(300), None, "bravo is in flight");
    site.finish("bravo", 301);
    assert_eq!(site.next(301).as_deref(), Some("bravo g's"));
}

/// A job that was in flight has the lease of classic jobs, from its start, in whichever row it may be; but
/// not with `--classic`, and not if it is a dead letter.
#[test]
fn jobs_in_flight_are_handed_out_again() {
    let lease = FAIR.lease();
    let directory = tempfile::tempdir().unwrap();
    in_use(&directory);
    let site = Site::in_directory(directory, Policy::Classic);
    assert_eq!(site.rows("SELECT * FROM shiftboss_in_flight"), [""; 0]);
    let mut site = site.restart(&options(FAIR), false);
    assert_eq!(site.rows("SELECT * FROM shiftboss_attempts"), [""; 0]);
    for clean in [false, true] {
        let deliveries =
            "SELECT attr_path, run_started, started, delivery_count FROM shiftboss_in_flight";
        assert_eq!(site.rows(deliveries), ["bravo|1|200|1"], "once");
        site = site.restart(&options(FAIR), clean);
    }
    assert_eq!(site.next(201 + lease).as_deref(), Some("charlie old"));
    assert_eq!(site.next(201 + lease).as_deref(), Some("alpha new"));
    site.delete(&run("g", 1));
    assert_eq!(site.next(200 + lease), None, "held");
    assert_eq!(site.next(201 + lease).as_deref(), Some("bravo old"));
    site.edit("INSERT INTO shiftboss_expired_leases VALUES (1, 1, 'charlie', 5, 1)");
    site = site.restart(&options(Policy::Classic), true).restart(&options(FAIR), true);
    assert_eq!(site.rows("SELECT attr_path FROM shiftboss_in_flight"), ["alpha", "bravo"]);
    site.check_kept();
}

/// A row without its run, as an edit without foreign keys leaves it, keeps nobody from taking the rest over.
#[test]
fn a_row_without_its_run_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    in_use(&directory);
    let hand = Connection::open(directory.path().join("state.db")).unwrap();
    hand.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM fetcher_runs WHERE run_started = 2")
        .unwrap();
    drop(hand);
    let mut site = Site::in_directory(directory, FAIR);
    assert_eq!(site.next(300).as_deref(), Some("charlie old"));
}

/// A dispatch that its row records is one, whatever became of the note of the last policy.
#[test]
fn a_dispatch_is_not_recorded_again() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    assert!(site.next(5).is_some());
    site.edit("UPDATE shiftboss_state SET value = 'classic' WHERE name = 'policy'");
    let mut site = site.restart(&options(FAIR), false);
    assert_eq!(site.rows("SELECT attr_path, attempt FROM shiftboss_in_flight"), ["alpha|1"]);
    site.finish("alpha", 6);
    assert_eq!(site.rows("SELECT attempt, outcome FROM shiftboss_attempts"), ["1|done"]);
}

/// So are those of a version 1 database, which has no jitter yet.
#[test]
fn version_1_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let reference = Reference::new(&directory, 1);
    reference
        .0
        .execute_batch(
            "INSERT INTO fetchers VALUES (7, 'f'); INSERT INTO fetcher_runs VALUES (7, 1, 1);
         INSERT INTO log VALUES ('alpha', 5, 6, 0);
         INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload)
         VALUES (7, 1, 'alpha', 'p'), (7, 1, 'bravo', 'p'), (7, 1, 'echo', 'p')",
        )
        .unwrap();
    let before = rows_of(&reference.0, PUBLIC);
    drop(reference);
    let mut site = Site::in_directory(directory, FAIR);
    assert_eq!(site.rows(PUBLIC), before);
    assert_eq!(
        site.rows("SELECT attr_path, order_jitter FROM queue ORDER BY 1"),
        ["alpha|-1555884244", "bravo|515152637", "echo|-669077045"]
    );
    let order: Vec<_> = (0..3).map(|_| site.next(10).unwrap()).collect();
    assert_eq!(order, ["echo p", "bravo p", "alpha p"]);
}

/// Forward, the reference's statements, forward again: nothing is lost or wrong on either way.
#[test]
fn the_reference_can_take_it_back() {
    for policy in [FAIR, Policy::Classic] {
        let directory = tempfile::tempdir().unwrap();
        in_use(&directory);
        let mut site = Site::in_directory(directory, policy);
        assert_eq!(site.next(300).as_deref(), Some("charlie old"));
        site.store.close_at_once().unwrap();
        let Site { store, outside, directory } = site;
        drop((store, outside));

        let reference = Reference::open(&directory);
        let index = "CREATE INDEX queue_order_index ON queue
            (last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started DESC)";
        reference.0.execute_batch(&format!("{index}; PRAGMA user_version = 2")).unwrap();
        reference.finish("charlie", 301);
        reference.dispatch("f", "alpha", 302);
        reference.upsert_run("f", 3, true);
        reference.enqueue("f", 3, "charlie", "newest");
        reference.enqueue("f", 3, "delta", "newest");
        reference.enqueue("f", 3, "delta", "newer still");
        reference.delete_run("f", 1);
        reference.delete_run("g", 1);
        let between = rows_of(&reference.0, PUBLIC);
        drop(reference);

        let mut site = Site::in_directory(directory, policy);
        assert_eq!(site.rows(PUBLIC), between);
        assert_eq!(site.rows("SELECT name FROM fetchers"), ["f"]);
        assert_eq!(
            site.rows("SELECT run_started, rows, pending FROM shiftboss_runs ORDER BY 1"),
            ["2|1|0", "3|2|2"]
        );
        let index = "SELECT 1 FROM sqlite_schema WHERE name = 'queue_order_index'";
        assert_eq!(site.rows(index), [""; 0]);
        assert_eq!(site.next(400).as_deref(), Some("delta newer still"));
        assert_eq!(site.next(400).as_deref(), Some("charlie newest"));
        assert_eq!(site.next(400), None);
    }
}

/// A new database has the schema that a taken-over one has.
#[test]
fn the_schema_is_the_sum_of_its_migrations() {
    let directory = tempfile::tempdir().unwrap();
    drop(Reference::new(&directory, 2));
    let taken = Site::in_directory(directory, FAIR);
    let new = Site::new(FAIR);
    let names = "SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2";
    assert_eq!(taken.rows(names), new.rows(names));
    let columns = "SELECT m.name, c.cid, c.name, upper(c.type), c.\"notnull\", c.dflt_value, c.pk
        FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table' ORDER BY 1, 2";
    let columns_of = |site: &Site| {
        site.rows(columns).into_iter().filter(|row| !row.starts_with("queue|")).collect::<Vec<_>>()
    };
    assert_eq!(columns_of(&taken), columns_of(&new));
    let queue = "SELECT name, upper(type), \"notnull\", dflt_value, pk FROM pragma_table_info('queue') ORDER BY 1";
    assert_eq!(taken.rows(queue), new.rows(queue));
}

/// After a clean close the file is in journal mode DELETE, with nothing beside it.
#[test]
fn a_clean_close_leaves_one_file() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    let Site { mut store, outside, directory } = site;
    drop(outside);
    store.close_at_once().unwrap();
    drop(store);
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["state.db"]);
    let header = std::fs::read(directory.path().join("state.db")).unwrap();
    assert_eq!(&header[18..20], [1, 1], "not in WAL mode");
    assert!(Site::in_directory(directory, FAIR).store.was_clean());
}
