//! A queue on a server that another one is moved into: one transaction, in which all is copied to tables beside it, and
//! then put where it belongs by a few statements (`merge.sql`).

use std::pin::Pin;

use shiftboss_protocol::model::jitter;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use super::Reserved;
use crate::exit::Failure;
use crate::stores::mark::{self, Mark, Moved};
use crate::stores::postgres::connection::Server;
use crate::stores::transfer::{Intake, Kind, Source, Table, Target, Value, occupied, read_all};

const MERGE: &str = include_str!("merge.sql");
const IS_THERE: &str =
    "SELECT EXISTS (SELECT FROM keys) OR EXISTS (SELECT FROM runs WHERE run <> 0)
    OR EXISTS (SELECT FROM accepted)";
/// The daemon whose lists these are, as one that was stopped.
const DAEMON: &str = "WITH known AS (
        INSERT INTO daemons (name, owner, version, epoch, beat_at, gone_at, policy_lease, max_tasks, takeover, input_directory)
        SELECT $1, '', $2, 0, now_ms() / 1000, now_ms() / 1000, coalesce(lease, 43200), coalesce(max_tasks, 1000000), 600,
            input_directory
        FROM moved_state
        ON CONFLICT (name) DO UPDATE SET lost = false, pid = NULL, started = NULL, gone_at = excluded.gone_at, beat_at = excluded.beat_at,
            policy_lease = excluded.policy_lease, max_tasks = excluded.max_tasks, input_directory = excluded.input_directory
        RETURNING daemon)
    SELECT set_config('shiftboss.daemon', daemon::text, true) FROM known";

/// See the module's documentation.
pub(in crate::stores) struct Arriving {
    reserved: Reserved,
    /// Whose lists they will be.
    daemon: String,
}

impl Arriving {
    pub(in crate::stores) fn open(server: &Server, daemon: &str) -> Result<Self, Failure> {
        let reserved = Reserved::take(server, true)?;
        Ok(Self { reserved, daemon: daemon.to_owned() })
    }

    /// What comes after the copies.
    fn merge(&self, mark: &Mark) -> Result<(), Failure> {
        let Self { reserved, daemon, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        reserved.wait(reserved.client().query_one(DAEMON, &[daemon, &version]))?;
        reserved.execute(MERGE)?;
        let marked = "UPDATE state SET move = $1, moved = NULL";
        reserved.wait(reserved.client().execute(marked, &[&mark::text(mark)])).map(drop)
    }
}

impl Target for Arriving {
    fn name(&self) -> String {
        self.reserved.name.clone()
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        self.reserved.mark("move")
    }

    fn discard(&mut self) -> Result<(), Failure> {
        self.reserved.execute("DROP SCHEMA shiftboss, shiftboss_public CASCADE")?;
        self.reserved.migrate()
    }

    fn fill(&mut self, mark: &Mark, source: &mut dyn Source) -> Result<Vec<Moved>, Failure> {
        let reserved = &self.reserved;
        if reserved.wait(reserved.client().query_one(IS_THERE, &[]))?.get(0) {
            return Err(occupied(format!(
                "there is a queue in {} already: give another database, or, if nobody needs that queue, DROP SCHEMA shiftboss, shiftboss_public CASCADE",
                reserved.name
            )));
        }
        reserved.execute("BEGIN")?;
        let moved = read_all(source, &mut Copies { reserved, writer: None, key_at: None })?;
        self.merge(mark)?;
        self.reserved.execute("COMMIT")?;
        Ok(moved)
    }

    fn open_up(&mut self) -> Result<(), Failure> {
        self.reserved.execute("UPDATE state SET move = NULL")
    }
}

/// Copies one table after the other to temporary tables: moved_*, with the jitter of keys as the last column.
struct Copies<'a> {
    reserved: &'a Reserved,
    writer: Option<Pin<Box<BinaryCopyInWriter>>>,
    /// Where the key is in a row.
    key_at: Option<usize>,
}

/// A column's definition, and its type in a copy.
fn column(kind: Kind) -> (&'static str, Type) {
    match kind {
        Kind::Integer => ("int8", Type::INT8),
        Kind::Text => ("text", Type::TEXT),
        Kind::Key | Kind::Bytes => ("bytea", Type::BYTEA),
    }
}

fn field(value: &Value) -> &(dyn ToSql + Sync) {
    match value {
        Value::Integer(number) => number,
        Value::Text(text) => text,
        Value::Bytes(bytes) => bytes,
    }
}

impl Intake for Copies<'_> {
    fn begin(&mut self, table: Table) -> Result<(), Failure> {
        let (reserved, name, columns) = (self.reserved, table.name(), table.columns());
        let mut defined: Vec<String> =
            columns.iter().map(|(name, kind)| format!("{name} {}", column(*kind).0)).collect();
        let mut types: Vec<Type> = columns.iter().map(|(_, kind)| column(*kind).1).collect();
        self.key_at = columns.iter().position(|(_, kind)| *kind == Kind::Key);
        if self.key_at.is_some() {
            defined.push("jitter int4".to_owned());
            types.push(Type::INT4);
        }
        let defined = defined.join(", ");
        reserved.execute(&format!("CREATE TEMP TABLE moved_{name} ({defined}) ON COMMIT DROP"))?;
        let copy = format!("COPY moved_{name} FROM STDIN BINARY");
        let sink = reserved.wait(reserved.client().copy_in(&copy))?;
        self.writer = Some(Box::pin(BinaryCopyInWriter::new(sink, &types)));
        Ok(())
    }

    fn add(&mut self, row: &[Value]) -> Result<(), Failure> {
        let mut fields: Vec<&(dyn ToSql + Sync)> = row.iter().map(field).collect();
        let jitter = self.key_at.and_then(|at| match &row[at] {
            Value::Bytes(Some(key)) => Some(jitter(&String::from_utf8_lossy(key))),
            _ => None,
        });
        if self.key_at.is_some() {
            fields.push(&jitter);
        }
        match &mut self.writer {
            Some(writer) => self.reserved.wait(writer.as_mut().write(&fields)),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        match self.writer.take() {
            Some(mut writer) => self.reserved.wait(writer.as_mut().finish()).map(drop),
            None => Ok(()),
        }
    }
}
