//! The reference's database as a running installation has it on disk (spec 6), and the
//! statements that the reference runs on it.

use std::path::Path;

use rusqlite::Connection;

/// Version 1: without `order_jitter`.
const VERSION_1: &str = r#"
CREATE TABLE `fetchers` (
    `fetcher_id` `integer` PRIMARY KEY AUTOINCREMENT,
    `name` `text` NOT NULL UNIQUE) STRICT;
CREATE TABLE `fetcher_runs` (
    `fetcher_id` `integer` NOT NULL REFERENCES `fetchers` (`fetcher_id`),
    `run_started` `integer` NOT NULL,
    `is_complete` `integer` NOT NULL DEFAULT 0,
    PRIMARY KEY (`fetcher_id`, `run_started`)) STRICT;
CREATE INDEX `fetcher_run_started_index` ON `fetcher_runs` (`run_started`, `fetcher_id`);
CREATE TRIGGER `fetcher_runs_delete` AFTER DELETE ON `fetcher_runs` BEGIN
    DELETE FROM `fetchers` WHERE `fetcher_id` = OLD.`fetcher_id` AND `fetcher_id` NOT IN
        (SELECT `fetcher_id` FROM `fetcher_runs`);
END;
CREATE TABLE `queue` (
    `fetcher_id` `integer` NOT NULL,
    `fetcher_run_started` `integer` NOT NULL,
    `attr_path` `text` NOT NULL,
    `payload` `text` NOT NULL,
    `is_dequeued` `integer` NOT NULL DEFAULT 0,
    `last_started` `integer`,
    PRIMARY KEY (`fetcher_run_started`, `fetcher_id`, `attr_path`),
    FOREIGN KEY (`fetcher_id`, `fetcher_run_started`)
        REFERENCES `fetcher_runs` (`fetcher_id`, `run_started`) ON DELETE CASCADE) STRICT;
CREATE INDEX `queue_order_index` ON `queue`
    (`last_started` ASC, `attr_path`, `fetcher_id`, `fetcher_run_started` DESC);
CREATE INDEX `queue_attr_path_index` ON `queue` (`attr_path` ASC);
CREATE TABLE `log` (
    `attr_path` `text` PRIMARY KEY,
    `started` `integer` NOT NULL,
    `finished` `integer`,
    `exit_code` `integer`) STRICT, WITHOUT ROWID;
CREATE TRIGGER `queue_insert_started` AFTER INSERT ON `queue` BEGIN
    UPDATE `queue` SET `last_started` = `started` FROM `log`
    WHERE `log`.`attr_path` = NEW.`attr_path` AND `queue`.`rowid` = NEW.`rowid`;
END;
CREATE TRIGGER `log_insert_started` AFTER INSERT ON `log` BEGIN
    UPDATE `queue` SET `last_started` = NEW.`started`
    WHERE `queue`.`attr_path` = NEW.`attr_path`;
END;
CREATE TRIGGER `log_update_started` AFTER UPDATE OF `started` ON `log` BEGIN
    UPDATE `queue` SET `last_started` = NEW.`started`
    WHERE `queue`.`attr_path` = NEW.`attr_path`;
END;
PRAGMA user_version = 1;
"#;

/// What version 2 changed.
const VERSION_2: &str = r#"
ALTER TABLE `queue` ADD COLUMN `order_jitter` `integer`;
DROP INDEX `queue_order_index`;
CREATE INDEX `queue_order_index` ON `queue`
    (`last_started` ASC, `order_jitter`, `attr_path`, `fetcher_id`, `fetcher_run_started` DESC);
PRAGMA user_version = 2;
"#;

/// A new database of version 1 with foreign keys on.
pub fn version_1(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    connection
}

/// A new database of version 2 with foreign keys on.
pub fn version_2(path: &Path) -> Connection {
    let connection = version_1(path);
    connection.execute_batch(VERSION_2).unwrap();
    connection
}

/// Registers a run as the reference does.
pub fn register(connection: &Connection, fetcher: &str, started: i64, complete: bool) {
    connection.execute("INSERT OR IGNORE INTO fetchers (name) VALUES (?1)", [fetcher]).unwrap();
    let statement = "INSERT INTO fetcher_runs (fetcher_id, run_started, is_complete) \
        VALUES ((SELECT fetcher_id FROM fetchers WHERE name = ?1), ?2, ?3) \
        ON CONFLICT DO UPDATE SET is_complete = excluded.is_complete";
    let values = rusqlite::params![fetcher, started, complete];
    connection.execute(statement, values).unwrap();
}

/// Adds a row as the reference does (version 2).
pub fn enqueue(connection: &Connection, fetcher: &str, started: i64, key: &str, payload: &str) {
    let statement = "INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, \
        order_jitter) SELECT fetcher_id, ?2, ?3, ?4, ?5 FROM fetchers WHERE name = ?1 \
        ON CONFLICT DO UPDATE SET payload = excluded.payload";
    let jitter = shiftboss_protocol::model::jitter(key);
    let values = rusqlite::params![fetcher, started, key, payload, jitter];
    connection.execute(statement, values).unwrap();
}

/// Marks a key dispatched for `fetcher` at `now`, as the reference does.
pub fn dispatch(connection: &Connection, fetcher: &str, key: &str, now: i64) {
    let mark = "UPDATE queue SET is_dequeued = 1 WHERE attr_path = ?2 AND fetcher_id = \
        (SELECT fetcher_id FROM fetchers WHERE name = ?1)";
    connection.execute(mark, [fetcher, key]).unwrap();
    let log = "INSERT INTO log (attr_path, started) VALUES (?1, ?2) ON CONFLICT DO UPDATE \
        SET started = excluded.started, finished = NULL, exit_code = NULL";
    connection.execute(log, rusqlite::params![key, now]).unwrap();
}

/// Records the end of a job, as the reference does.
pub fn finish(connection: &Connection, key: &str, now: i64, code: i64) {
    let statement = "UPDATE log SET finished = ?2, exit_code = ?3 WHERE attr_path = ?1";
    let values = rusqlite::params![key, now, code];
    connection.execute(statement, values).unwrap();
}

/// Deletes a run as the reference does; its rows go by the foreign key.
pub fn delete(connection: &Connection, fetcher: &str, started: i64) {
    let statement = "DELETE FROM fetcher_runs WHERE run_started = ?2 AND fetcher_id = \
        (SELECT fetcher_id FROM fetchers WHERE name = ?1)";
    let values = rusqlite::params![fetcher, started];
    connection.execute(statement, values).unwrap();
}
