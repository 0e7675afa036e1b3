//! The schema and its numbered migrations (spec 6). Used when a database is opened.
//!
//! `user_version` says which migrations a file has had. The steps are in `migrations/`, the
//! triggers in `triggers.sql`. A file that the Python supervisor took back in between says version
//! 2 but has what a later version added: the last step finds what is there. Versions 3 to 10 were those of
//! unreleased builds; 5 to 10 are upgraded, 3 and 4 are refused.

use std::sync::LazyLock;

use rusqlite::{Connection, Result, TransactionBehavior};
use shiftboss_protocol::model::jitter;

use super::query::Query;

/// The version that this program reads and writes.
pub(super) const VERSION: i64 = 14;
/// `application_id` of a database of ours ("SHFT"). The reference sets none.
pub(super) const APPLICATION_ID: i64 = 0x5348_4654;
/// The id of the fetcher `@tasks`: no list has it, so a row of it is known by its number alone.
pub(super) const TASKS_ID: i64 = 0;
/// The tables that are a public interface.
pub(super) const PUBLIC_TABLES: [&str; 4] = ["fetchers", "fetcher_runs", "queue", "log"];

const REFERENCE: &str = include_str!("migrations/0001_reference.sql");
const JITTER: &str = include_str!("migrations/0002_jitter.sql");
const SHIFTBOSS: &str = include_str!("migrations/0009_shiftboss.sql");
const FROM_5: &str = include_str!("migrations/0006_from_5.sql");
const FROM_6: &str = include_str!("migrations/0007_from_6.sql");
const FROM_7: &str = include_str!("migrations/0008_from_7.sql");
const FROM_8: &str = include_str!("migrations/0009_from_8.sql");
const RELAYS: &str = include_str!("migrations/0010_relays.sql");
const LANES: &str = include_str!("migrations/0011_lanes.sql");
const HISTORY: &str = include_str!("migrations/0012_history.sql");
const HOLDS: &str = include_str!("migrations/0013_holds.sql");
const BUMPS: &str = include_str!("migrations/0014_bumps.sql");
const TRIGGERS: &str = include_str!("triggers.sql");
const REBUILD: &str = include_str!("rebuild.sql");

/// What a row is to the dispatcher; see `0009_shiftboss.sql`. The `+` keeps SQLite on the key's index.
pub(super) const STATE: &str = "CASE
    WHEN EXISTS (SELECT 1 FROM shiftboss_holds AS hold WHERE hold.attr_path = queue.attr_path) THEN 0
    WHEN EXISTS (
        SELECT 1 FROM shiftboss_deliveries AS held
        WHERE held.attr_path = queue.attr_path AND held.lease IS NOT NULL
    ) THEN 0
    WHEN EXISTS (
        SELECT 1 FROM queue AS newer
        WHERE newer.attr_path = queue.attr_path AND +newer.fetcher_id = queue.fetcher_id
          AND +newer.fetcher_run_started > queue.fetcher_run_started
    ) THEN 0
    WHEN queue.is_dequeued <> 0 AND NOT EXISTS (
        SELECT 1 FROM shiftboss_deliveries AS delivery
        WHERE delivery.attr_path = queue.attr_path AND delivery.fetcher_id = queue.fetcher_id
          AND delivery.run_started = queue.fetcher_run_started
    ) THEN 0
    WHEN EXISTS (
        SELECT 1 FROM log WHERE log.attr_path = queue.attr_path AND log.finished IS NULL
    ) THEN -1
    WHEN queue.fetcher_id = 0 OR EXISTS (
        SELECT 1 FROM queue AS other
        WHERE other.attr_path = queue.attr_path AND +other.rowid <> queue.rowid
    ) OR EXISTS (
        SELECT 1 FROM shiftboss_deliveries AS expired WHERE expired.attr_path = queue.attr_path
    ) OR EXISTS (
        SELECT 1 FROM shiftboss_bumps AS bump WHERE bump.attr_path = queue.attr_path
    ) OR EXISTS (
        SELECT 1 FROM shiftboss_expired_leases AS lost
        WHERE lost.fetcher_id = queue.fetcher_id AND lost.attr_path = queue.attr_path
          AND lost.run_started = queue.fetcher_run_started
    ) THEN 2
    ELSE 1 END";

/// The columns of `shiftboss_deliveries`.
const DELIVERY: &str = "attr_path, attempt, fetcher_id, run_started, started, delivery_count,
    prev_started, prev_finished, prev_exit_code, prev_last_served, marked_runs, worker, lease";
/// What `shiftboss_row_deliveries` says of a row that was changed or deleted.
const OLD_DELIVERY: &str = "SELECT OLD.attr_path, OLD.last_served, OLD.fetcher_id,
        OLD.fetcher_run_started, log.started, 1, OLD.prev_started, OLD.prev_finished,
        OLD.prev_exit_code, OLD.prev_last_served, json_array(OLD.fetcher_run_started), NULL, NULL
    FROM log WHERE log.attr_path = OLD.attr_path AND log.finished IS NULL
        AND OLD.state = -2 AND OLD.last_served IS NOT NULL";

/// Sets the state of all rows of the key ?1.
pub(super) static RECOMPUTE: LazyLock<String> = LazyLock::new(|| recompute("?1"));
/// Moves the record of the dispatch of the key ?1 from its row to `shiftboss_deliveries`. Its state is to be set next.
pub(super) static EXTRACT: LazyLock<String> = LazyLock::new(|| extract_of("?1"));

/// Brings a database from the version it has to [`VERSION`], in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<()> {
    let application: i64 = connection.pragma_query_one(None, "application_id")?;
    if version(connection)? == VERSION && application == APPLICATION_ID {
        // Nothing is written in vain: the disk may be full.
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = version(&transaction)?;
    if version < 1 {
        transaction.execute_batch(REFERENCE)?;
    }
    if version < 2 {
        add_jitter(&transaction)?;
    }
    if version < VERSION {
        add_ours(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.commit()
}

/// The version that a database says it has.
pub(super) fn version(connection: &Connection) -> Result<i64> {
    connection.pragma_query_one(None, "user_version")
}

/// Version 2. The reference threw all rows away here; the jitter can be had from the key.
fn add_jitter(connection: &Connection) -> Result<()> {
    if !connection.column_exists(None, "queue", "order_jitter")? {
        connection.execute_batch(JITTER)?;
    }
    let keys = "SELECT rowid, attr_path FROM queue WHERE order_jitter IS NULL";
    for (rowid, key) in connection.rows::<(i64, String)>(keys, [])? {
        let set = "UPDATE queue SET order_jitter = ?2 WHERE rowid = ?1";
        connection.run(set, (rowid, jitter(&key)))?;
    }
    Ok(())
}

/// What is ours. On a file that had it before, only what is kept by triggers is made anew.
fn add_ours(connection: &Connection) -> Result<()> {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'shiftboss!_%' ESCAPE '!'";
    for name in connection.values::<String>(names, [])? {
        connection.execute_batch(&format!("DROP TRIGGER {name}"))?;
    }
    if is_unreleased(connection)? {
        if !connection.column_exists(None, "shiftboss_attempts", "took_ms")? {
            connection.execute_batch(FROM_5)?;
        }
        connection.execute_batch(FROM_6)?;
    }
    if !connection.column_exists(None, "queue", "state")? {
        connection.execute_batch(SHIFTBOSS)?;
    } else if !connection.column_exists(None, "queue", "prev_started")? {
        if !connection.column_exists(None, "queue", "last_served")? {
            connection.execute_batch(FROM_7)?;
        }
        connection.execute_batch(FROM_8)?;
    }
    if !connection.table_exists(None, "shiftboss_relays")? {
        connection.execute_batch(RELAYS)?;
    }
    if !connection.table_exists(None, "shiftboss_relay_lanes")? {
        connection.execute_batch(LANES)?;
    }
    if !connection.column_exists(None, "shiftboss_attempts", "ended")? {
        connection.execute_batch(HISTORY)?;
    }
    if !connection.table_exists(None, "shiftboss_holds")? {
        connection.execute_batch(HOLDS)?;
    }
    if !connection.table_exists(None, "shiftboss_bumps")? {
        connection.execute_batch(BUMPS)?;
    }
    connection.execute_batch(&completed(REBUILD))?;
    connection.execute_batch(&completed(TRIGGERS))
}

/// It has the tables of a version from 3 to 6, whatever its number says.
pub(super) fn is_unreleased(connection: &Connection) -> Result<bool> {
    connection.column_exists(None, "queue", "slot")
}

/// It has those of version 3 or 4, which are not upgraded.
pub(super) fn is_too_old(connection: &Connection) -> Result<bool> {
    Ok(is_unreleased(connection)?
        && !connection.column_exists(None, "shiftboss_own_fetchers", "name")?)
}

/// The tables of a whole database, in the order in which they were made.
pub(super) fn tables() -> Result<Vec<String>> {
    let mut whole = Connection::open_in_memory()?;
    migrate(&mut whole)?;
    let sql = "SELECT name FROM sqlite_schema
        WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY rowid";
    whole.values(sql, [])
}

/// Puts the statements in that `triggers.sql` and `rebuild.sql` name; without a key they are for all rows.
fn completed(sql: &str) -> String {
    let old = extract(OLD_DELIVERY);
    let mut out = sql.replace("RECOMPUTE()", &rule()).replace("EXTRACT()", &extract_all());
    out = out.replace("EXTRACT(OLD)", &old);
    for key in ["NEW.attr_path", "OLD.attr_path"] {
        out = out.replace(&format!("RECOMPUTE({key})"), &recompute(key));
        out = out.replace(&format!("EXTRACT({key})"), &extract_of(key));
    }
    out
}

fn recompute(key: &str) -> String {
    format!("{} AND queue.attr_path = {key}", rule())
}

fn extract_of(key: &str) -> String {
    format!("{} WHERE attr_path = {key}", extract_all())
}

/// Moves the records of all dispatches.
pub(super) fn extract_all() -> String {
    extract(&format!("SELECT {DELIVERY} FROM shiftboss_row_deliveries"))
}

fn extract(records: &str) -> String {
    format!("INSERT OR IGNORE INTO shiftboss_deliveries ({DELIVERY}) {records}")
}

fn rule() -> String {
    format!("UPDATE queue SET state = {STATE} WHERE queue.state IS NOT {STATE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents name the version that is written.
    #[test]
    fn the_documents_say_which_version() {
        let operating = include_str!("../../../docs/operating.md");
        let migrating = include_str!("../../../docs/migrating-from-supervisor-py.md");
        let json = include_str!("../../../docs/json.md");
        assert!(json.contains(&format!("| `schema_version` | integer | {VERSION}. ")));
        assert!(operating.contains(&format!("this program knows versions up to {VERSION} ")));
        assert!(migrating.contains(&format!("`user_version` becomes {VERSION}.")));
    }
}
