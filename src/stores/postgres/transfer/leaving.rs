//! A queue on a server, from which it is moved: one transaction reads all of it, and ends with the mark that it was moved.

use tokio_postgres::Row;

use super::Reserved;
use crate::exit::Failure;
use crate::stores::mark::{self, Mark};
use crate::stores::postgres::connection::Server;
use crate::stores::transfer::{Each, Kind, Source, Table, Value};

/// Rows that are fetched at once.
const FETCH: &str = "FETCH 1000 FROM leaving";

/// The columns of a table.
fn select(table: Table) -> &'static str {
    match table {
        // The rules of the daemon that was there last; the input directory, if it is one daemon whose lists these are.
        Table::State => {
            "SELECT paused::int4::int8, last_task, CASE WHEN is_called THEN last_value ELSE 0 END,
                (SELECT last_value FROM fetchers_fetcher_seq), last.policy_lease, last.max_tasks,
                (SELECT min(input_directory) FROM daemons WHERE daemon IN (SELECT daemon FROM runs) AND process IS NULL
                    HAVING count(*) = 1), installation, (SELECT thousandths FROM bump_credit),
                (SELECT share::int8 FROM bump_credit)
            FROM state, attempt_numbers LEFT JOIN (SELECT policy_lease, max_tasks FROM daemons WHERE process IS NULL
                ORDER BY beat_at DESC, daemon DESC LIMIT 1) AS last ON true"
        }
        Table::Fetchers => "SELECT fetcher::int8, name FROM fetchers WHERE fetcher <> 0",
        Table::Runs => {
            "SELECT fetcher::int8, run_started, complete::int4::int8, deleting::int4::int8,
                (stale OR ahead IS NOT DISTINCT FROM coalesce(position, 'null'))::int4::int8, skipped,
                (position ->> 'offset')::int8, (position ->> 'lines')::int8, (position ->> 'device')::int8,
                (position ->> 'inode')::int8, (position ->> 'checksum')::int8, (position ->> 'content')::int8,
                (position ->> 'modified')::int8, (position ->> 'changed')::int8,
                (SELECT substr(d.name, 7) FROM fetchers f JOIN fetcher_owners o USING (name) JOIN daemons d USING (daemon)
                    WHERE f.fetcher = runs.fetcher AND d.process IS NOT NULL)
            FROM runs WHERE run <> 0"
        }
        Table::Queue => {
            "SELECT fetcher::int8, run_started, key, payload, dispatched::int4::int8, served, expired::int8, dead::int4::int8
            FROM queue JOIN keys USING (key_id)"
        }
        // In the order of the dispatches, as SQLite's own is.
        Table::Log => {
            "SELECT key, started, finished, exit_code FROM log JOIN keys USING (key_id)
            WHERE started IS NOT NULL ORDER BY started"
        }
        Table::LastServed => "SELECT key, name, attempt FROM last_served JOIN keys USING (key_id)",
        Table::Attempts => {
            "SELECT attempt, key, fetcher::int8, run_started, started_ms, worker, lease::int8,
                delivery_count::int8, prev_started, prev_finished, prev_exit_code, prev_served,
                to_json(coalesce(marked, ARRAY[run_started]))::text, finished, outcome, exit_code, took_ms, ended
            FROM attempts JOIN keys USING (key_id)"
        }
        Table::SingleTasks => {
            "SELECT task, key, added, status, payload FROM single_tasks JOIN keys USING (key_id)"
        }
        Table::Accepted => "SELECT spool, name, inode, born, checksum FROM accepted",
        Table::Completions => {
            "SELECT minute, exit_code, sum(jobs)::int8 FROM completions
            GROUP BY minute, exit_code HAVING sum(jobs) > 0"
        }
        Table::Hours => {
            "SELECT hour, fetcher, outcome, sum(jobs)::int8, sum(took_ms)::int8, sum(revisits)::int8,
                sum(revisit_seconds)::int8
            FROM hours GROUP BY hour, fetcher, outcome HAVING sum(jobs) > 0"
        }
        Table::Holds => {
            "SELECT key, kind, since, until, reason, held_by FROM holds JOIN keys USING (key_id)"
        }
        Table::BackoffCounts => {
            "SELECT key, failures FROM backoff_counts JOIN keys USING (key_id)"
        }
        Table::Bumps => {
            "SELECT key, since, bumped_by, attempt, last_attempt, kind, due, fetcher::int8, run_started, retries::int8
                FROM bumps JOIN keys USING (key_id) ORDER BY bumps.place"
        }
    }
}

/// See the module's documentation. Without [`Source::leave`] the queue stays as it was.
pub(in crate::stores) struct Leaving(Reserved);

impl Leaving {
    pub(in crate::stores) fn open(server: &Server) -> Result<Self, Failure> {
        let reserved = Reserved::take(server, false)?;
        reserved.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        Ok(Self(reserved))
    }
}

fn value(row: &Row, at: usize, kind: Kind) -> Value {
    match kind {
        Kind::Integer => Value::Integer(row.get(at)),
        Kind::Text => Value::Text(row.get(at)),
        Kind::Key | Kind::Bytes => Value::Bytes(row.get(at)),
    }
}

impl Source for Leaving {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn identity(&mut self) -> Result<String, Failure> {
        let identity =
            "SELECT system_identifier || ':' || d.oid FROM pg_control_system(), pg_database d
            WHERE d.datname = current_database()";
        Ok(self.0.wait(self.0.client().query_one(identity, &[]))?.get(0))
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        self.0.mark("moved")
    }

    fn read(&mut self, table: Table, each: Each<'_>) -> Result<(), Failure> {
        self.0.execute(&format!("DECLARE leaving NO SCROLL CURSOR FOR {}", select(table)))?;
        loop {
            let rows = self.0.wait(self.0.client().query(FETCH, &[]))?;
            if rows.is_empty() {
                return self.0.execute("CLOSE leaving");
            }
            for row in &rows {
                let columns = table.columns().iter().enumerate();
                let values: Vec<Value> =
                    columns.map(|(at, (_, kind))| value(row, at, *kind)).collect();
                each(&values)?;
            }
        }
    }

    fn leave(&mut self, mark: &Mark) -> Result<(), Failure> {
        let marked = "UPDATE state SET moved = $1";
        self.0.wait(self.0.client().execute(marked, &[&mark::text(mark)]))?;
        self.0.execute("COMMIT")
    }
}
