//! A damaged file: what can be read of it is saved into a new one, which is a queue, and what was lost is reported.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::records::StoreError;
use shiftboss_sqlite::{Salvage, Salvaged, SqliteRecords, look_through, open_damaged, salvage};
use tempfile::TempDir;

use crate::subject;
use crate::words::{NOW, Script};

const KEYS: usize = 800;
const PAGE: u32 = 1_024;

/// A file with lists, attempts, single tasks, holds and a bump; `state.db` in a directory.
fn filled() -> (TempDir, PathBuf) {
    let mut script = Script::new(Settings::default());
    let keys: Vec<String> = (0..KEYS).map(|at| format!("key{at}")).collect();
    let mut say = |request: &str| drop(script.say(request));
    say(&format!("list f.1 {}", keys.join(" ")));
    say(&format!("list g.1 {}", keys[..100].join(" ")));
    for at in 0..400 {
        say("ready");
        if at % 10 > 0 {
            say(&format!("done {} {}", at + 1, i32::from(at % 7 == 0)));
        }
    }
    (0..300).for_each(|at| say(&format!("add single{}={at}", at / 2)));
    (0..50).for_each(|at| say(&format!("hold key{at} 1000")));
    say("bump key700");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let connection = script.store().connection();
    connection.execute("VACUUM INTO ?1", [path.to_str()]).unwrap();
    let small = format!("PRAGMA page_size = {PAGE}; VACUUM");
    Connection::open(&path).unwrap().execute_batch(&small).unwrap();
    (directory, path)
}

fn tear(path: &Path, pages: impl Iterator<Item = u32>, with: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let garbage = vec![with; PAGE as usize];
    pages.for_each(|page| file.write_all_at(&garbage, u64::from((page - 1) * PAGE)).unwrap());
}

fn saved(path: &Path) -> (Salvage, Connection) {
    let mut new = Connection::open(path.with_extension("new")).unwrap();
    new.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let damaged = open_damaged(path).unwrap();
    let salvage = salvage(&damaged, &mut new, NOW * 1_000).unwrap();
    (salvage, new)
}

fn root(path: &Path, name: &str) -> u32 {
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    Connection::open(path).unwrap().query_row(sql, [name], |row| row.get(0)).unwrap()
}

/// Each row that can be read by its key is in the new file, too, as long as its key's name is known.
fn nothing_readable_is_missing(old: &Path, whole: &Path, new: &Connection) {
    let old = Connection::open_with_flags(old, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let whole = Connection::open(whole).unwrap();
    for (table, by, of_key) in [
        ("keys", "id", "id"),
        ("tasks", "number", "key"),
        ("attempts", "ended", "key"),
        ("extras", "key", "key"),
        ("rows", "key", "key"),
    ] {
        let mut query = whole.prepare(&format!("SELECT {by}, {of_key} FROM {table}")).unwrap();
        let ids = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        for (id, key) in ids.map(Result::<(i64, i64), _>::unwrap) {
            // The last column is read, so that all of the row is.
            let sql = format!("SELECT * FROM {table} NOT INDEXED WHERE {by} = ?1 ORDER BY 1, 2, 3");
            let read = |from: &Connection| {
                from.prepare(&sql)?.query_row([id], |row| row.get::<_, i64>(0)).optional()
            };
            let name = "SELECT key FROM keys WHERE id = ?1";
            let is_known = new.prepare_cached(name).unwrap().exists([key]).unwrap();
            if let Ok(Some(_)) = read(&old)
                && is_known
            {
                assert!(read(new).unwrap().is_some(), "{table} {id}");
            }
        }
    }
}

/// It is sound, derived data matches the records, and its keys are handed out.
fn goes_on(new: Connection, has_all_rows: bool) {
    let found = look_through(&new);
    assert!(found.damage.is_empty(), "{found:?}");
    let number = |sql: &str| new.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let rows = number("SELECT count(*) FROM rows") + number("SELECT count(*) FROM tasks");
    assert_eq!(number("SELECT sum(rows) FROM counts"), rows);
    let waiting = number("SELECT sum(waiting) FROM counts");
    let ready = number("SELECT count(*) FROM keys WHERE turn IS NOT NULL");
    let store = SqliteRecords::new(new).unwrap();
    let mut script = Script::new(Settings::default());
    script.engine = Some(Engine::new(store, Settings::default()));
    let mut handed_out = 0;
    while script.say("ready").starts_with("job") {
        handed_out += 1;
    }
    assert!(handed_out == ready && ready <= waiting, "{handed_out} {ready} {waiting}");
    assert!(!has_all_rows || ready > 300, "{ready}");
}

/// Pages in the middle are zeros or garbage, at several places.
#[test]
fn torn_pages_cost_what_is_in_them() {
    let (directory, path) = filled();
    let whole = directory.path().join("whole");
    std::fs::copy(&path, &whole).unwrap();
    let pages = std::fs::metadata(&path).unwrap().len() / u64::from(PAGE);
    let (mut seed, mut rounds) = (1_u64, 0);
    for round in 0..12 {
        std::fs::copy(&whole, &path).unwrap();
        // After the schema's pages.
        let torn: Vec<u32> = (0..=round % 8)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                20 + ((seed >> 33) % (pages - 20)) as u32
            })
            .collect();
        tear(&path, torn.into_iter(), if round % 2 == 0 { 0 } else { 0xa5 });
        // Some pages of the schema are among them.
        if open_damaged(&path).is_err() {
            continue;
        }
        let (_, new) = saved(&path);
        rounds += 1;
        nothing_readable_is_missing(&path, &whole, &new);
        goes_on(new, false);
        std::fs::remove_file(path.with_extension("new")).unwrap();
    }
    assert!(rounds > 6, "{rounds}");
}

#[test]
fn a_sound_file_loses_nothing() {
    let (_directory, path) = filled();
    let (salvage, new) = saved(&path);
    assert!(salvage.tables.iter().all(|it| it.lost == Some(0)), "{salvage:?}");
    let old = Connection::open(&path).unwrap();
    for sql in [
        "SELECT group_concat(key || id || coalesce(turn, '') || served || extra) FROM keys",
        "SELECT group_concat(extras || coalesce(lane, '') || coalesce(due, '')) FROM extras",
        "SELECT group_concat(key || fetcher || run || armed || payload) FROM rows",
        "SELECT group_concat(number || status || payload) FROM tasks",
        "SELECT group_concat(ended || attempt || previous || outcome) FROM attempts",
        "SELECT group_concat(fetcher || run || rows || waiting || in_flight || held || bumped) FROM counts",
        "SELECT last_attempt || last_bump || last_single || last_since || credit || ids || ends FROM header",
    ] {
        let [old, new] = [&old, &new]
            .map(|it| it.query_row(sql, [], |row| row.get::<_, Option<String>>(0)).unwrap());
        assert_eq!(new, old, "{sql}");
    }
    goes_on(new, true);
}

/// The root of a table is gone: other tables show that, and the rest is saved.
#[test]
fn a_table_without_its_root_is_lost_alone() {
    let (_directory, sound) = filled();
    for (table, lost) in [
        ("keys", Some(950)),
        ("rows", Some(900)),
        ("tasks", Some(300)),
        ("attempts", Some(360)),
        ("header", None),
        ("names", None),
        ("in_order", Some(0)),
        ("keys_by_key", None),
    ] {
        let path = sound.with_file_name(table);
        std::fs::copy(&sound, &path).unwrap();
        tear(&path, [root(&sound, table)].into_iter(), 0);
        let (salvage, new) = saved(&path);
        let found = salvage.tables.iter().find(|it| it.table == table);
        assert!(found.is_none_or(|it| it.lost == lost), "{table}: {salvage:?}");
        let others = salvage.tables.iter().filter(|it| it.table != table);
        let counted: Vec<_> = others.filter(|it| it.lost != Some(0)).collect();
        assert!(counted.is_empty() || table == "keys_by_key", "{table}: {counted:?}");
        if table == "keys" {
            assert_eq!(salvage.anew, 950, "{salvage:?}");
            let ran = "SELECT count(*) FROM keys WHERE started IS NOT NULL";
            assert_eq!(new.query_row(ran, [], |row| row.get::<_, i64>(0)).unwrap(), 360);
        }
        goes_on(new, table != "rows");
    }
}

/// The last number of a damaged page may be anything: what comes after it and the torn page that follows is saved all
/// the same, and the single task gets the next number.
#[test]
fn a_wild_number_hides_nothing() {
    let (_directory, path) = filled();
    let sql =
        "SELECT pageno, ncell FROM dbstat WHERE name = 'tasks' AND pagetype = 'leaf' ORDER BY path";
    let whole = Connection::open(&path).unwrap();
    let mut leaves = whole.prepare(sql).unwrap();
    let leaves = leaves.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let leaves: Vec<(u32, i64)> = leaves.map(Result::unwrap).collect();
    let (wild, torn) = (leaves[leaves.len() - 4], leaves[leaves.len() - 3]);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut page = vec![0; PAGE as usize];
    let start = u64::from((wild.0 - 1) * PAGE);
    file.read_exact_at(&mut page, start).unwrap();
    let number = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    // Its last cell: the length of its row in one byte, and then its number, which has two.
    let cell = number(8 + 2 * (number(3) - 1));
    assert!(page[cell] < 0x80 && page[cell + 1] >= 0x80, "{:?}", &page[cell..cell + 4]);
    file.write_all_at(&[0xff, 0x7f], start + cell as u64 + 1).unwrap();
    tear(&path, [torn.0].into_iter(), 0xa5);
    let (salvage, new) = saved(&path);
    let tasks = "SELECT count(*), max(number), (SELECT last_single FROM header) FROM tasks";
    let tasks: (i64, i64, i64) = new.query_row(tasks, [], |row| row.try_into()).unwrap();
    assert_eq!(tasks, (300 - torn.1, 301, 301), "{salvage:?}");
    goes_on(new, true);
}

/// What is in the log beside the file, but not yet in the file, is saved, too.
#[test]
fn the_log_beside_it_counts() {
    let (_directory, path) = filled();
    let daemon = Connection::open(&path).unwrap();
    daemon.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
    daemon.execute("UPDATE keys SET started = 7 WHERE key = 'key790'", []).unwrap();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT 1 FROM keys").unwrap();
    daemon.execute("UPDATE keys SET started = 8 WHERE key = 'key790'", []).unwrap();
    tear(&path, [root(&path, "rows_by_run")].into_iter(), 0xa5);
    let (_, new) = saved(&path);
    let started = "SELECT started FROM keys WHERE key = 'key790'";
    assert_eq!(new.query_row(started, [], |row| row.get::<_, i64>(0)).unwrap(), 8);
}

/// The error names the target if that is not empty, and the source if nothing of it can be read.
#[test]
fn who_is_to_blame_is_said() {
    let (_directory, path) = filled();
    std::fs::write(path.with_extension("text"), "a text\n".repeat(1_000)).unwrap();
    let mut new = Connection::open_in_memory().unwrap();
    let error = open_damaged(&path.with_extension("text")).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    let foreign = path.with_extension("foreign");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let error = open_damaged(&foreign).unwrap_err();
    assert!(
        matches!(&error, StoreError::Fatal(why) if why.contains("another program")),
        "{error:?}"
    );
    new.execute_batch("PRAGMA max_page_count = 50").unwrap();
    let error = salvage(&open_damaged(&path).unwrap(), &mut new, NOW).unwrap_err();
    assert!(matches!(error, StoreError::Full(_)), "{error:?}");
}

/// Salvaging a queue that was moved away makes it a queue here, and nothing of it is lost.
#[test]
fn a_mark_of_a_move_is_not_saved() {
    let (_directory, path) = filled();
    let mark = "INSERT INTO documents VALUES ('moved', '{}'), ('arriving', '{}')";
    Connection::open(&path).unwrap().execute_batch(mark).unwrap();
    let (salvage, new) = saved(&path);
    assert!(salvage.tables.iter().all(|it| it.lost == Some(0)), "{salvage:?}");
    let sql = "SELECT count(*) FROM documents WHERE name IN ('moved', 'arriving')";
    assert_eq!(new.query_row(sql, [], |row| row.get::<_, i64>(0)), Ok(0));
}

/// Single tasks with an invalid status wait again.
#[test]
fn a_status_that_is_none_is_found_anew() {
    let mut script = Script::new(Settings::default());
    script.run("add a=1\nadd a=2\nadd b=3\nready -> job 1 a 1");
    let connection = script.store().connection();
    connection
        .execute_batch("UPDATE tasks SET status = 'waitinf'; UPDATE keys SET waiting = 0")
        .unwrap();
    let damaged = subject::reader(script.store());
    let (_, new) = saved(&damaged.directory.path().join("state.db"));
    let sql = "SELECT group_concat(status) FROM (SELECT status FROM tasks ORDER BY number)";
    let statuses: String = new.query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(statuses.ends_with("waiting,waiting"), "{statuses}");
    goes_on(new, false);
}

/// A fetcher whose name is not UTF-8 is left out with its rows, which the lists restore; unless the names' index still
/// has it.
#[test]
fn a_name_that_cannot_be_read_is_left_out() {
    let (_directory, path) = filled();
    let connection = Connection::open(&path).unwrap();
    connection.execute("UPDATE names SET name = CAST(x'fe' AS TEXT) WHERE name = 'f'", []).unwrap();
    let start = u64::from((root(&path, "names") - 1) * PAGE);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut page = vec![0; PAGE as usize];
    file.read_exact_at(&mut page, start).unwrap();
    let name = page.iter().rposition(|byte| *byte == b'g').unwrap();
    file.write_all_at(&[0xfe], start + name as u64).unwrap();
    let (salvage, new) = saved(&path);
    let lost = |table| salvage.tables.iter().find(|it| it.table == table).unwrap().lost;
    assert_eq!(["names", "runs", "rows", "keys"].map(lost), [1, 1, 800, 0].map(Some));
    assert!(!salvage.tables.iter().any(Salvaged::is_lost_for_good), "{salvage:?}");
    goes_on(new, false);
}

/// Numbers of the header are raised to those in use, and no row waits for an attempt that will not come.
#[test]
fn numbers_are_those_of_what_there_is() {
    let (_directory, path) = filled();
    let damage = "UPDATE header SET last_attempt = 0, last_single = 0, ends = 0;
        UPDATE rows SET armed = 9223372036854775807 WHERE fetcher = 2";
    Connection::open(&path).unwrap().execute_batch(damage).unwrap();
    let (_, new) = saved(&path);
    let sql = "SELECT last_attempt, last_single, (SELECT max(armed) FROM rows) FROM header";
    let numbers: (i64, i64, i64) = new.query_row(sql, [], |row| row.try_into()).unwrap();
    assert_eq!(numbers, (400, 300, 400));
    goes_on(new, true);
}
