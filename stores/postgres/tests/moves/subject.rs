//! The store that these tests run on: each time that it is opened again it has moved, from a file to a server or back.

use std::collections::BTreeMap;

use rusqlite::Connection;
use rusqlite::types::Value;
use shiftboss_postgres::{PostgresRecords, tables as on_server};
use shiftboss_protocol::model::Attempt;
use shiftboss_queue::attempt::EndedAttempt;
use shiftboss_queue::context::Settings;
use shiftboss_queue::counts::COUNTS;
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::record::{FetcherId, Millis, SingleStatus, Task};
use shiftboss_queue::records::*;
use shiftboss_queue::rules::groups::Group;
use shiftboss_queue::tables::{TABLES, listed};
use shiftboss_sqlite::{SqliteRecords, tables as in_file};

pub use crate::server::wait;
use crate::words::Script;
use crate::{file, server};

/// A number that a daemon drew but did not use is lost when the queue moves.
pub const HAS_GAPS: bool = true;

const DAEMON: i64 = 1;
/// The engines of these histories have no member; where a queue arrives, one is named.
const MEMBER: &str = "member/1";

pub enum Store {
    File(Box<SqliteRecords>),
    Server(Box<PostgresRecords>),
}

/// All documents but that of [`MEMBER`].
const DOCUMENTS: &str = "SELECT name, value FROM documents WHERE name NOT LIKE 'member/%'";
const INSERT: &str = "INSERT INTO documents VALUES ($1, $2)";

pub fn new() -> Store {
    Store::File(Box::new(file::new()))
}

impl Store {
    pub fn reopened(self) -> Self {
        match self {
            Self::File(file) => {
                let server = to_server(file.connection());
                assert_eq!(dump(to_file(&server).connection()), dump(file.connection()));
                assert_eq!(public_on_server(&server), public_in_file(file.connection()));
                Self::Server(Box::new(server))
            }
            Self::Server(server) => Self::File(Box::new(to_file(&server))),
        }
    }
}

fn to_server(file: &Connection) -> PostgresRecords {
    let server = server::store(&server::schema(), DAEMON);
    let client = server.client();
    wait(client.batch_execute("BEGIN")).unwrap();
    let arrival = wait(on_server::Arrival::begin(client)).unwrap();
    for table in TABLES {
        let columns = in_file::columns(file, table).unwrap();
        let begun = on_server::Filling::begin(client, table, &columns, DAEMON);
        let mut filling = wait(begun).unwrap();
        let read = in_file::read(file, table, &columns, |row| wait(filling.add(row)));
        read.unwrap().unwrap();
        wait(filling.end()).unwrap();
    }
    wait(arrival.end(client, DAEMON, MEMBER)).unwrap();
    for (name, text) in documents(file) {
        wait(client.execute(INSERT, &[&name, &text])).unwrap();
    }
    wait(client.batch_execute("UPDATE keys SET owner = NULL; COMMIT")).unwrap();
    server
}

fn to_file(server: &PostgresRecords) -> SqliteRecords {
    let mut file = Connection::open_in_memory().unwrap();
    let fill = |file: &Connection| -> StoreResult<()> {
        for table in TABLES {
            let columns = in_file::columns(file, table)?;
            let begun = on_server::Reading::begin(server.client(), table, &columns);
            let mut reading = wait(begun)?;
            let mut filling = in_file::Filling::begin(file, table, &columns)?;
            while let Some(row) = wait(reading.next())? {
                filling.add(&reading.values(&row)?)?;
            }
        }
        Ok(())
    };
    in_file::make_filled(&mut file, fill).unwrap().unwrap();
    for row in wait(server.client().query(DOCUMENTS, &[])).unwrap() {
        file.execute(INSERT, [row.get::<_, String>(0), row.get(1)]).unwrap();
    }
    SqliteRecords::new(file).unwrap()
}

fn documents(file: &Connection) -> Vec<(String, String)> {
    let mut query = file.prepare(DOCUMENTS).unwrap();
    let all = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    all.map(Result::unwrap).collect()
}

/// All that is in a file, as text; but for sums that are nothing.
fn dump(file: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    for table in TABLES {
        let sums = if ["hours", "minutes"].contains(&table) { "WHERE jobs <> 0" } else { "" };
        let columns = listed(&in_file::columns(file, table).unwrap());
        let sql = format!("SELECT '{table}', {columns} FROM {table} {sums}");
        let mut statement = file.prepare(&sql).unwrap();
        let count = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let values: Vec<Value> = (0..count).map(|at| row.get(at).unwrap()).collect();
            Ok(format!("{values:?}"))
        };
        all.extend(statement.query_map([], row).unwrap().map(Result::unwrap));
    }
    all.sort();
    all
}

/// The public views of a queue on a server, as the program makes them.
const VIEWS: &str = include_str!("../../../../src/stores/postgres/views.sql");
/// All that is there, and in a file, as text.
const PUBLIC: &str = "SELECT 'queue ' || fetcher_id || '.' || fetcher_run_started || ' ' || attr_path || ' ' || payload
        || ' ' || is_dequeued || ' ' || coalesce(last_started, -1) FROM queue
    UNION ALL SELECT 'log ' || attr_path || ' ' || started || ' ' || coalesce(finished, -1) || ' ' || coalesce(exit_code, -1) FROM log
    UNION ALL SELECT 'run ' || fetcher_id || '.' || run_started || ' ' || is_complete FROM fetcher_runs
    UNION ALL SELECT 'fetcher ' || fetcher_id || ' ' || name FROM fetchers";

fn public_in_file(file: &Connection) -> Vec<String> {
    let mut query = file.prepare(PUBLIC).unwrap();
    let mut all: Vec<_> =
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    all.sort();
    all
}

/// Its views exist only while they are read, so that tests do not get in each other's way.
fn public_on_server(server: &PostgresRecords) -> Vec<String> {
    let views = VIEWS.replace("shiftboss_public", "views_of_moves");
    let first = "SELECT set_config('search_path', 'views_of_moves, ' || current_schema(), true)";
    let client = server.client();
    let mut all: Vec<_> = wait(async {
        client.batch_execute(&format!("BEGIN; {views} {first}")).await.unwrap();
        let rows = client.query(PUBLIC, &[]).await.unwrap();
        client.batch_execute("ROLLBACK").await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    });
    all.sort();
    all
}

/// The row of a fetcher that was never served does not wait, in either view.
#[test]
fn a_dead_letter_waits_in_no_view() {
    let settings = Settings { max_expired_leases: 1, ..Settings::default() };
    let script = "list f.1 a b\nlease -> job 1 a p\nexpire 1 -> expired a true\nlease\nrestart";
    Script::new(settings).run(script);
}

/// The answer of the store that has the queue now.
macro_rules! said {
    ($store:expr, $it:ident => $said:expr) => {
        match $store {
            Store::File($it) => $said,
            Store::Server($it) => $said,
        }
    };
}

/// Of a look from outside.
macro_rules! looks {
    ($($name:ident($($arg:ident: $type:ty)?) -> $answer:ty;)*) => {
        $(pub fn $name(store: &Store $(, $arg: $type)?) -> $answer {
            match store {
                Store::File(it) => file::$name(it $(, $arg)?),
                Store::Server(it) => server::$name(it $(, $arg)?),
            }
        })*
    };
}
looks! {
    refuse(refuse: bool) -> bool;
    counts() -> BTreeMap<(i64, i64), [i64; COUNTS]>;
    hours() -> BTreeMap<(i64, i64, String), [i64; 4]>;
    minutes() -> BTreeMap<(i64, i64), i64>;
    log() -> BTreeMap<String, (i64, Option<i64>, Option<i64>)>;
}

/// Of the port.
macro_rules! records {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Records for Store {
            $(async fn $name(&mut self, $($arg: $type),*) -> $answer {
                said!(self, it => it.$name($($arg),*).await)
            })*
        }
    };
}
type Behind<'a> = Option<&'a Stored>;
records! {
    begin(outset: &Outset) -> StoreResult<Begun>;
    number(last: Attempt) -> StoreResult<Option<Attempt>>;
    edits(count: usize) -> StoreResult<Vec<Edit>>;
    load(names: &[Name]) -> StoreResult<Vec<Option<Stored>>>;
    next(from: From, behind: Behind<'_>, count: usize) -> StoreResult<Vec<Stored>>;
    first_opening() -> StoreResult<Option<Millis>>;
    closed(until: Millis, most: u32) -> StoreResult<u32>;
    groups(ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>>;
    opening(behind: Opens, until: Millis, count: usize) -> StoreResult<Vec<(Opens, Group)>>;
    flights() -> StoreResult<Vec<InFlight>>;
    stops(count: usize) -> StoreResult<Vec<Attempt>>;
    leaving(behind: Behind<'_>, also: Option<(FetcherId, i64)>, count: usize) -> StoreResult<(Option<Stored>, bool)>;
    of_run(run: (FetcherId, i64), behind: Option<KeyId>, count: usize) -> StoreResult<Vec<Stored>>;
    payload(id: KeyId, task: Task) -> StoreResult<Payload>;
    single(number: i64) -> StoreResult<Option<SingleStatus>>;
    singles(id: KeyId, status: SingleStatus, count: usize) -> StoreResult<Vec<i64>>;
    waiting_single(id: KeyId, payload: &str) -> StoreResult<Option<i64>>;
    ended(attempt: Attempt) -> StoreResult<Option<EndedAttempt>>;
    document(name: &str) -> StoreResult<Option<String>>;
    documents(prefix: &str) -> StoreResult<Vec<(String, String)>>;
    note(name: String, text: Option<String>) -> StoreResult<()>;
    save(changes: Changes<'_>) -> StoreResult<()>;
    commit() -> StoreResult<()>;
    roll_back() -> ();
}
