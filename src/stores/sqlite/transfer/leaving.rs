//! A queue in a file, from which it is moved to a server, whose tables are others still: one transaction, in which nobody else
//! writes, reads all of it, and ends with the mark that it was moved.

use std::path::{Path, PathBuf};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, Row};
use serde_json::Value as Json;
use shiftboss_queue::code;
use shiftboss_queue::documents::{DAEMON, IDENTITY, MOVED, Policy};
use shiftboss_queue::record::FetcherId;
use shiftboss_sqlite::document;

use crate::exit::Failure;
use crate::stores::mark::Mark;
use crate::stores::sqlite::file::{failed, not_usable, stopped};
use crate::stores::transfer::{Each, Kind, Source, Table, Value};

/// What others wrote into the views, and no daemon has carried out.
const EDITED: &str = "SELECT EXISTS (SELECT 1 FROM log_edits) OR EXISTS (SELECT 1 FROM row_edits)";
/// Of a row that hangs on the list of a fetcher; the single tasks of a key have one row there, in the place of all of them.
const QUEUE: &str = "
    SELECT rows.fetcher, rows.run, keys.key, rows.payload, armed < coalesce(served_by(served, rows.fetcher), 0),
        served_by(served, rows.fetcher), coalesce((SELECT it.value ->> '$[1]' FROM json_each(extras, '$.expired') AS it
            WHERE it.value ->> '$[0].Row.fetcher' = rows.fetcher AND it.value ->> '$[0].Row.run' = rows.run), 0),
        EXISTS (SELECT 1 FROM json_each(extras, '$.dead') AS it
            WHERE it.value ->> '$[0].Row.fetcher' = rows.fetcher AND it.value ->> '$[0].Row.run' = rows.run)
    FROM rows JOIN keys ON keys.id = rows.key LEFT JOIN extras ON extras.key = keys.id
    UNION ALL
    SELECT 0, number, name, payload, status <> 'waiting', served_by(served, 0), max(expired, status = 'dead_letter'),
        status = 'dead_letter'
    FROM (SELECT tasks.number, keys.key AS name, tasks.payload, status, served,
            coalesce((SELECT it.value ->> '$[1]' FROM json_each(extras, '$.expired') AS it
                WHERE it.value ->> '$[0].Single.number' = tasks.number), 0) AS expired,
            row_number() OVER (PARTITION BY tasks.key ORDER BY status = 'in_flight' DESC, status DESC,
                iif(status = 'waiting', number, -number)) AS place
        FROM tasks JOIN keys ON keys.id = tasks.key LEFT JOIN extras ON extras.key = keys.id
        WHERE status NOT IN ('done', 'cancelled'))
    WHERE place = 1";
/// Fetchers that have no row of the key any more.
const LAST_SERVED: &str = "
    SELECT key, coalesce(name, '@tasks'), served_by(served, served.fetcher)
    FROM (SELECT keys.id, keys.key, served, CAST(it.value AS INTEGER) AS fetcher
        FROM keys, json_each('[\"' || replace(served, ' ', '\",\"') || '\"]') AS it WHERE served <> '') AS served
    LEFT JOIN names ON names.fetcher = served.fetcher
    WHERE (name IS NOT NULL OR served.fetcher = 0)
        AND NOT EXISTS (SELECT 1 FROM rows WHERE rows.key = id AND rows.fetcher = served.fetcher)
        AND NOT (served.fetcher = 0 AND EXISTS (SELECT 1 FROM tasks
            WHERE tasks.key = id AND status NOT IN ('done', 'cancelled')))";
const ATTEMPTS: &str = "
    SELECT attempts.attempt, keys.key, attempts.fetcher, attempts.run, attempts.started_ms, attempts.worker, NULL, 1,
        attempts.started_ms / 1000 - revisit, NULL, NULL, NULL, NULL, ended_ms / 1000,
        iif(outcome IN ('success', 'timeout', 'failure', 'cancelled'), 'done', outcome), attempts.exit_code,
        ended_ms - attempts.started_ms, ended
    FROM attempts JOIN keys ON keys.id = attempts.key
    UNION ALL
    SELECT attempt, key, fetcher, run, started_ms, worker, lease,
        1 + coalesce((SELECT it.value ->> '$[1]' FROM extras, json_each(extras, '$.expired') AS it
            WHERE extras.key = keys.id AND (it.value ->> '$[0].Row.fetcher' = fetcher AND it.value ->> '$[0].Row.run' = run
                OR fetcher = 0 AND it.value ->> '$[0].Single.number' = run)), 0),
        before ->> '$[0][0]', before ->> '$[0][1]', before ->> '$[0][2]', before ->> '$[1]',
        (SELECT iif(count(*) = 0, json_array(keys.run), json_group_array(rows.run)) FROM rows
            WHERE rows.key = id AND rows.fetcher = keys.fetcher AND armed >= coalesce(before ->> '$[1]', 0)),
        NULL, NULL, NULL, NULL, NULL
    FROM keys WHERE attempt IS NOT NULL";
const HOLDS: &str = "
    SELECT keys.key, 'hold', extras ->> '$.hold.since',
        (extras ->> '$.hold.until.at' + clock - extras ->> '$.hold.until.clock' + 999) / 1000,
        extras ->> '$.hold.reason', extras ->> '$.hold.by'
    FROM extras JOIN keys ON keys.id = extras.key JOIN header WHERE extras ->> '$.hold' IS NOT NULL
    UNION ALL
    SELECT keys.key, 'backoff', (extras ->> '$.backoff.until.at' - extras ->> '$.backoff.until.delay') / 1000,
        (extras ->> '$.backoff.until.at' + clock - extras ->> '$.backoff.until.clock' + 999) / 1000,
        iif(extras ->> '$.backoff.failures' = 1, 'failed', 'failed ' || (extras ->> '$.backoff.failures') || ' times in a row'), 'backoff'
    FROM extras JOIN keys ON keys.id = extras.key JOIN header WHERE extras ->> '$.backoff.until' IS NOT NULL";
/// Of each key a server has one: that of an operator, else that of the task which is tried again first.
const BUMPS: &str = "
    SELECT key, since, held_by, attempt, NULL, kind, due, fetcher, run, retries FROM (
        SELECT *, row_number() OVER (PARTITION BY key ORDER BY kind, attempt IS NOT NULL, due NULLS FIRST, place) AS turn FROM (
            SELECT keys.key, extras ->> '$.bump.since' AS since, extras ->> '$.bump.by' AS held_by, NULL AS attempt, 'bump' AS kind,
                NULL AS due, NULL AS fetcher, NULL AS run, 0 AS retries, extras ->> '$.bump.number' AS place
            FROM extras JOIN keys ON keys.id = extras.key WHERE extras ->> '$.bump' IS NOT NULL
            UNION ALL
            SELECT key, before ->> '$[2].since', before ->> '$[2].by', attempt, 'bump', NULL, NULL, NULL, 0, before ->> '$[2].number'
            FROM keys WHERE before ->> '$[2]' IS NOT NULL
            UNION ALL
            SELECT keys.key, coalesce((it.value ->> '$.due.at' - it.value ->> '$.due.delay') / 1000, finished, 0), 'job_retry',
                iif(coalesce(it.value ->> '$.task.Row.fetcher', 0) = keys.fetcher
                    AND coalesce(it.value ->> '$.task.Row.run', it.value ->> '$.task.Single.number') = keys.run, attempt, NULL),
                'retry', (it.value ->> '$.due.at' + clock - it.value ->> '$.due.clock' + 999) / 1000,
                coalesce(it.value ->> '$.task.Row.fetcher', 0), coalesce(it.value ->> '$.task.Row.run', it.value ->> '$.task.Single.number'),
                it.value ->> '$.number', it.value ->> '$.lane'
            FROM extras JOIN keys ON keys.id = extras.key JOIN header, json_each(extras, '$.retries') AS it))
    WHERE turn = 1 ORDER BY place";

/// The columns of a table.
fn select(table: Table) -> &'static str {
    match table {
        Table::State => {
            "SELECT coalesce(paused, 0), coalesce(last_single, 0), coalesce(last_attempt, 0),
                (SELECT coalesce(max(fetcher), 0) FROM names),
                (SELECT value ->> '$.lease_seconds' FROM documents WHERE name = 'daemon'),
                (SELECT value ->> '$.max_single_tasks' FROM documents WHERE name = 'daemon'),
                (SELECT value ->> '$.identity' FROM documents WHERE name = 'input'),
                (SELECT value ->> '$' FROM documents WHERE name = 'installation'), coalesce(credit, 1000),
                (SELECT value ->> '$.bump_share' FROM documents WHERE name = 'daemon')
            FROM (SELECT 1) LEFT JOIN header"
        }
        Table::Fetchers => {
            "SELECT fetcher, name FROM names WHERE fetcher IN (SELECT fetcher FROM runs)"
        }
        Table::Runs => {
            "SELECT fetcher, run, complete, deleting, stale <> 0, skipped, part(position, '/offset'), part(position, '/lines'),
                part(position, '/device'), part(position, '/inode'), part(position, '/checksum'), part(position, '/content'),
                part(position, '/verified/modified'), part(position, '/verified/changed'),
                (SELECT substr(relay.name, 7) FROM documents AS relay, json_each(relay.value, '$.fetchers') AS it
                    WHERE relay.name GLOB 'relay/*' AND it.value = names.name)
            FROM runs JOIN names USING (fetcher)"
        }
        Table::Queue => QUEUE,
        Table::Log => {
            "SELECT key, started, finished, exit_code FROM keys WHERE started IS NOT NULL"
        }
        Table::LastServed => LAST_SERVED,
        Table::Attempts => ATTEMPTS,
        // When it was added nobody asks.
        Table::SingleTasks => {
            "SELECT number, keys.key, 0, iif(status = 'in_flight', 'waiting', status), payload
            FROM tasks JOIN keys ON keys.id = tasks.key WHERE status NOT IN ('done', 'cancelled')"
        }
        Table::Accepted => {
            "SELECT value ->> '$.spool', value ->> '$.name', part(value, '/inode'), part(value, '/born'), part(value, '/checksum')
            FROM documents WHERE name GLOB 'accepted/*'"
        }
        Table::Completions => "SELECT minute, exit_code, jobs FROM minutes WHERE jobs > 0",
        Table::Hours => {
            "SELECT hour, CASE hours.fetcher WHEN 0 THEN '@tasks' ELSE coalesce(name, '') END, outcome, sum(jobs),
                sum(took_ms), sum(revisits), sum(revisit_seconds)
            FROM hours LEFT JOIN names USING (fetcher) WHERE jobs > 0 GROUP BY 1, 2, 3"
        }
        Table::Holds => HOLDS,
        Table::BackoffCounts => {
            "SELECT keys.key, extras ->> '$.backoff.failures' FROM extras JOIN keys ON keys.id = extras.key
            WHERE extras ->> '$.backoff' IS NOT NULL"
        }
        Table::Bumps => BUMPS,
    }
}

/// See the module's documentation. Without [`Source::leave`] the file stays as it was.
pub(in crate::stores) struct Leaving {
    connection: Connection,
    path: PathBuf,
}

impl Leaving {
    /// The caller has its lock.
    pub(in crate::stores) fn open(path: &Path) -> Result<Self, Failure> {
        let (connection, path) = super::to_leave(path)?;
        add_functions(&connection).map_err(failed("read", &path))?;
        let leaving = Self { connection, path };
        leaving.fit()?;
        // Before anything is moved: the target has it from the beginning on.
        let named = "INSERT OR IGNORE INTO documents (name, value)
            VALUES (?1, json_quote(lower(hex(randomblob(16)))))";
        let named = leaving.connection.execute(named, [IDENTITY.name()]);
        named
            .and_then(|_| leaving.connection.execute_batch("COMMIT; BEGIN IMMEDIATE"))
            .map_err(failed("write to", &leaving.path))?;
        Ok(leaving)
    }

    fn fit(&self) -> Result<(), Failure> {
        let daemon = document(&self.connection, &DAEMON).map_err(stopped("read", &self.path))?;
        let edited = self.connection.query_row(EDITED, [], |row| row.get::<_, bool>(0));
        let is_classic = daemon.is_some_and(|it| it.policy == Policy::Classic);
        if is_classic || edited.map_err(failed("read", &self.path))? {
            let why = "it was used without leases last (--classic, the Python supervisor), or edited by hand: start \
                       `shiftboss serve` on it once, which sees to that, and stop it";
            return Err(not_usable(&self.path, why));
        }
        Ok(())
    }
}

/// What SQL knows not: numbers of JSON that are larger than its own, and when a fetcher was served last.
fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("part", 2, flags, |context: &Context<'_>| {
        let (json, path) = (context.get::<Option<String>>(0)?, context.get::<String>(1)?);
        let json: Option<Json> = json.and_then(|json| serde_json::from_str(&json).ok());
        let part = json.as_ref().and_then(|json| json.pointer(&path));
        Ok(part.and_then(|it| it.as_i64().or_else(|| it.as_u64().map(u64::cast_signed))))
    })?;
    connection.create_scalar_function("served_by", 2, flags, |context: &Context<'_>| {
        let served = code::served_of(context.get_raw(0).as_str()?).unwrap_or_default();
        Ok(served.get(&FetcherId(context.get(1)?)).map(|attempt| attempt.0))
    })
}

fn value(row: &Row<'_>, at: usize, kind: Kind) -> rusqlite::Result<Value> {
    Ok(match kind {
        Kind::Integer => Value::Integer(row.get(at)?),
        Kind::Text => {
            Value::Text(row.get::<_, Option<String>>(at)?.map(|text| text.replace('\0', "\\0")))
        }
        Kind::Key | Kind::Bytes => {
            Value::Bytes(row.get_ref(at)?.as_bytes_or_null()?.map(<[u8]>::to_vec))
        }
    })
}

impl Source for Leaving {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn identity(&mut self) -> Result<String, Failure> {
        let named = document(&self.connection, &IDENTITY).map_err(stopped("read", &self.path))?;
        Ok(named.unwrap_or_default())
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        document(&self.connection, &MOVED).map_err(stopped("read", &self.path))
    }

    fn read(&mut self, table: Table, each: Each<'_>) -> Result<(), Failure> {
        let cannot = || failed("read", &self.path);
        let mut statement = self.connection.prepare(select(table)).map_err(cannot())?;
        let mut rows = statement.query([]).map_err(cannot())?;
        while let Some(row) = rows.next().map_err(cannot())? {
            let columns = table.columns().iter().enumerate();
            let values: rusqlite::Result<Vec<Value>> =
                columns.map(|(at, (_, kind))| value(row, at, *kind)).collect();
            each(&values.map_err(cannot())?)?;
        }
        Ok(())
    }

    fn leave(&mut self, mark: &Mark) -> Result<(), Failure> {
        super::leave(&self.connection, &self.path, mark)
    }
}
