//! Reading and filling a server's tables when a queue moves (`shiftboss_queue::tables`): with COPY, on a connection of
//! the program's `move`, in a transaction of its own.
//!
//! This module handles what differs from a file: the header, whose numbers come from sequences; sums, of which each
//! daemon has a part; and places, which are derived from the keys.

use std::pin::Pin;

use futures_util::StreamExt;
use shiftboss_queue::credit::CREDIT_FIRST;
use shiftboss_queue::records::StoreResult;
use shiftboss_queue::tables::{Column, Value, listed};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutRow, BinaryCopyOutStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use crate::error::classify;

/// Each daemon has its part of these.
const SUMS: [&str; 3] = ["counts", "hours", "minutes"];
/// Removes the rest of a queue without keys and lists, or of a move that was broken off.
const EMPTY: &str = "TRUNCATE keys, places, rows, extras, tasks, attempts, groups, stands, heads, hours, minutes, names, runs, counts, credits, beats, documents";
/// All indexes except those of primary keys and other constraints.
const INDEXES: &str = "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
    WHERE relnamespace = current_schema()::regnamespace AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)";
/// The header as a file has it, empty.
const HEADER: &str = "CREATE TEMP TABLE moved_header (one int8, last_attempt int8, last_bump int8, last_single int8, last_since int8,
    credit int8, paused boolean, clock int8, ids int8, ends int8) ON COMMIT DROP";
/// The same, of the queue that is here.
fn header() -> String {
    format!(
        "(SELECT 1::int8 AS one, numbers.last_value AS last_attempt, last_bump, last_single, last_since,
            coalesce((SELECT max(credit) FROM credits), {CREDIT_FIRST}) AS credit, paused, clock, ids,
            coalesce((SELECT max(ended) FROM attempts), 0) AS ends
        FROM header, numbers)"
    )
}

/// What no table of a file has, made once those are filled.
const ARRIVED: &str = "
    UPDATE header SET version = version + 1, last_bump = moved.last_bump, last_single = moved.last_single,
        last_since = moved.last_since, paused = moved.paused, clock = moved.clock, ids = moved.ids FROM moved_header AS moved;
    SELECT setval('numbers', greatest(last_attempt, 0)), setval('ends', greatest(ends, 1), ends > 0) FROM moved_header;
    INSERT INTO places (kind, at, key) SELECT place.kind, at, id FROM keys,
        LATERAL (VALUES (CASE held WHEN 1 THEN 2 WHEN 2 THEN 6 ELSE 1 END, turn), (3, attempt), (4, failed_at),
            (5, CASE WHEN claimed AND finished IS NULL THEN started END)) AS place (kind, at)
    WHERE at IS NOT NULL ORDER BY 1, 2, 3";

/// A queue that arrives, in a transaction.
#[derive(Debug)]
pub struct Arrival {
    /// The statements that make the indexes.
    indexes: Vec<String>,
}

impl Arrival {
    /// Called before tables are filled. Daemons stay, but own nothing. Indexes are made last, because that is faster.
    pub async fn begin(client: &Client) -> StoreResult<Self> {
        let begin = async {
            client.batch_execute(&format!("{EMPTY}; {HEADER}")).await?;
            let (mut drops, mut indexes) = (String::new(), Vec::new());
            for row in client.query(INDEXES, &[]).await? {
                drops += &format!("DROP INDEX {}; ", row.try_get::<_, &str>(0)?);
                indexes.push(row.try_get(1)?);
            }
            client.batch_execute(&drops).await?;
            Ok(Self { indexes })
        };
        begin.await.map_err(classify)
    }

    /// All tables are filled: the queue is complete. Jobs without an owner become this member's.
    pub async fn end(self, client: &Client, daemon: i64, member: &str) -> StoreResult<()> {
        let credit = "INSERT INTO credits (daemon, credit) SELECT $1, credit FROM moved_header";
        let owner = "UPDATE keys SET owner = $1 WHERE owner IS NULL AND attempt IS NOT NULL";
        let end = async {
            client.execute(owner, &[&member]).await?;
            client.execute(credit, &[&daemon]).await?;
            client.batch_execute(ARRIVED).await?;
            client.batch_execute(&self.indexes.join("; ")).await
        };
        end.await.map_err(classify)
    }
}

pub struct Filling {
    writer: Pin<Box<BinaryCopyInWriter>>,
    types: Vec<Type>,
    /// The daemon whose part of the sums it is.
    daemon: Option<i64>,
}

impl Filling {
    pub async fn begin(
        client: &Client,
        table: &str,
        columns: &[Column],
        daemon: i64,
    ) -> StoreResult<Self> {
        let daemon = SUMS.contains(&table).then_some(daemon);
        let columns = listed(columns) + if daemon.is_some() { ", daemon" } else { "" };
        let table = if table == "header" { "moved_header" } else { table };
        let begin = async {
            let types = types(client, &format!("SELECT {columns} FROM {table}")).await?;
            let copy = format!("COPY {table} ({columns}) FROM STDIN BINARY");
            let writer = BinaryCopyInWriter::new(client.copy_in(&copy).await?, &types);
            Ok(Self { writer: Box::pin(writer), types, daemon })
        };
        begin.await.map_err(classify)
    }

    pub async fn add(&mut self, row: &[Value<'_>]) -> StoreResult<()> {
        let daemon = self.daemon.map(Value::Integer);
        let row = row.iter().copied().chain(daemon).zip(&self.types);
        let row: Vec<_> = row.map(|(value, kind)| param(value, kind)).collect();
        self.writer.as_mut().write_raw(row).await.map_err(classify)
    }

    pub async fn end(mut self) -> StoreResult<()> {
        self.writer.as_mut().finish().await.map(drop).map_err(classify)
    }
}

async fn types(client: &Client, select: &str) -> Result<Vec<Type>, Error> {
    let statement = client.prepare(select).await?;
    Ok(statement.columns().iter().map(|it| it.type_().clone()).collect())
}

/// A value that was edited in a file may not be a valid text for a server.
fn param<'a>(value: Value<'a>, kind: &Type) -> Box<dyn ToSql + Sync + 'a> {
    let text = |bytes| String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    match *kind {
        Type::BOOL => Box::new(value.integer().map(|it| it != 0)),
        Type::TEXT => Box::new(value.text().map(text)),
        Type::BYTEA => Box::new(value.text()),
        _ => Box::new(value.integer()),
    }
}

pub struct Reading {
    rows: Pin<Box<BinaryCopyOutStream>>,
    types: Vec<Type>,
}

impl Reading {
    pub async fn begin(client: &Client, table: &str, columns: &[Column]) -> StoreResult<Self> {
        let select = select(table, columns);
        let begin = async {
            let types = types(client, &select).await?;
            let rows = client.copy_out(&format!("COPY ({select}) TO STDOUT BINARY")).await?;
            let rows = Box::pin(BinaryCopyOutStream::new(rows, &types));
            Ok(Self { rows, types })
        };
        begin.await.map_err(classify)
    }

    /// The next row, for [`Self::values`].
    pub async fn next(&mut self) -> StoreResult<Option<BinaryCopyOutRow>> {
        self.rows.next().await.transpose().map_err(classify)
    }

    pub fn values<'a>(&self, row: &'a BinaryCopyOutRow) -> StoreResult<Vec<Value<'a>>> {
        let all = self.types.iter().enumerate().map(|(at, kind)| {
            Ok(match *kind {
                Type::BOOL => row.try_get::<Option<bool>>(at)?.map(|it| Value::Integer(it.into())),
                Type::TEXT => row.try_get::<Option<&str>>(at)?.map(|it| Value::Text(it.as_bytes())),
                Type::BYTEA => row.try_get::<Option<&[u8]>>(at)?.map(Value::Text),
                _ => row.try_get::<Option<i64>>(at)?.map(Value::Integer),
            }
            .unwrap_or(Value::Null))
        });
        all.collect::<Result<_, _>>().map_err(classify)
    }
}

/// A table in a file's form, in the order of its keys, without sums of 0.
fn select(table: &str, columns: &[Column]) -> String {
    let (keys, others): (Vec<_>, Vec<_>) = columns.iter().partition(|it| it.is_key);
    let keys = listed(keys);
    if !SUMS.contains(&table) {
        let from = if table == "header" { header() } else { table.to_owned() };
        return format!("SELECT {} FROM {from} AS it ORDER BY {keys}", listed(columns));
    }
    let sums = others.iter().map(|it| format!("sum({})::int8", it.name)).collect::<Vec<_>>();
    let some = others.iter().map(|it| format!("sum({}) <> 0", it.name)).collect::<Vec<_>>();
    let (sums, some) = (sums.join(", "), some.join(" OR "));
    format!("SELECT {keys}, {sums} FROM {table} GROUP BY {keys} HAVING {some} ORDER BY {keys}")
}
