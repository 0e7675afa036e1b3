//! Makes the schema, in one transaction under an advisory lock: the tables of the records' crate, and the public views;
//! and reads which version of it a server has.
//!
//! Called when a daemon opens the store, and by `shiftboss migrate`. The version is the comment of the schema, where an
//! administrator sees it, too.

use std::time::Duration;

use shiftboss_queue::error::StoreError;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::connection::{CALL_MAX, unanswered};
use shiftboss_postgres::error::classify;

const VIEWS: &str = include_str!("views.sql");
const VERSION: usize = 1;
/// The oldest version that works on this one's schema, so that its daemons need not be stopped for an update.
const OLDEST: usize = 1;
/// The beginning of the schema's comment, and the text between its version and the oldest one.
const COMMENT: &str = "shiftboss, queue version ";
const ALSO_FOR: &str = ", also for ";
/// The database lock that is held while making the schema: "shiftbos" as a number.
const LOCK: i64 = 0x7368_6966_7462_6f73;

const MIGRATION_MAX: Duration = Duration::from_secs(60);
const SERVER_MIN: i32 = 140_000;

pub(crate) async fn migrate(client: &Client) -> Result<(), StoreError> {
    let migrated = async {
        check_server(client).await?;
        let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
        client.batch_execute(&lock).await.map_err(classify)?;
        if version(client).await? == 0 {
            make(client).await?;
        }
        client.batch_execute("COMMIT").await.map_err(classify)
    };
    timeout(MIGRATION_MAX, migrated).await.unwrap_or_else(|_| Err(unanswered()))
}

async fn make(client: &Client) -> Result<(), StoreError> {
    let tables = shiftboss_postgres::SCHEMA;
    let script = format!(
        "CREATE SCHEMA shiftboss; {tables} {VIEWS}
        COMMENT ON SCHEMA shiftboss IS '{COMMENT}{VERSION}{ALSO_FOR}{OLDEST}'"
    );
    client.batch_execute(&script).await.map_err(|error| match classify(error) {
        StoreError::Denied(text) => refused(&format!(
            "{text}; the role needs CREATE on the database for `shiftboss migrate`, or to own the schema shiftboss"
        )),
        error => error,
    })
}

/// Makes nothing; refuses a server without a schema.
pub(crate) async fn require_current(client: &Client) -> Result<(), StoreError> {
    check_server(client).await?;
    match version(client).await? {
        0 => Err(refused("there is no queue in this database: make it with `shiftboss migrate`")),
        _ => Ok(()),
    }
}

/// For daemons that have used the queue: on each connection, because the schema may have been upgraded, or be missing.
/// `Newer`; `Busy` while there is none, as in a database that is being restored.
pub(super) async fn require_usable(client: &Client) -> Result<(), StoreError> {
    match timeout(CALL_MAX, version(client)).await.map_err(|_| unanswered())?? {
        0 => Err(StoreError::Busy("there is no queue in this database any more".to_owned())),
        _ => Ok(()),
    }
}

/// Interprets an error for a daemon that has used the queue: to a role that may no longer use the schema, everything in
/// it seems to be missing.
pub(super) async fn looked_at(client: &Client, error: StoreError) -> StoreError {
    match error {
        StoreError::Fatal(_) => require_usable(client).await.err().unwrap_or(error),
        error => error,
    }
}

/// For who must know all tables.
pub(super) async fn require_same(client: &Client) -> Result<(), StoreError> {
    require_current(client).await?;
    let found = version(client).await?;
    if found > VERSION { Err(newer(found)) } else { Ok(()) }
}

async fn check_server(client: &Client) -> Result<(), StoreError> {
    let sql =
        "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding')";
    let row = client.query_one(sql, &[]).await.map_err(classify)?;
    unfit(row.get(0), row.get(1)).map_or(Ok(()), |why| Err(refused(&why)))
}

/// Why a server and its database are unsuitable.
fn unfit(version: i32, encoding: &str) -> Option<String> {
    if version < SERVER_MIN {
        let (found, needed) = (version / 10_000, SERVER_MIN / 10_000);
        return Some(format!("the server is PostgreSQL {found}: use version {needed} or newer"));
    }
    (encoding != "UTF8").then(|| {
        format!("the database has the encoding {encoding}: make one with encoding UTF8 (CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0)")
    })
}

fn refused(why: &str) -> StoreError {
    StoreError::Fatal(why.to_owned())
}

/// The version of the existing schema, which may be newer if this version can use it, too; 0: there is none.
pub(super) async fn version(client: &Client) -> Result<usize, StoreError> {
    let sql =
        "SELECT obj_description(oid, 'pg_namespace'), has_schema_privilege(oid, 'USAGE'), nspowner::regrole::text
        FROM pg_namespace WHERE nspname = 'shiftboss'";
    let Some(row) = client.query_opt(sql, &[]).await.map_err(classify)? else {
        return Ok(0);
    };
    if !row.get::<_, bool>(1) {
        let owner: String = row.get(2);
        return Err(StoreError::Denied(format!(
            "this role may not use the schema shiftboss: connect as {owner}, who has it, or grant USAGE on it"
        )));
    }
    usable(row.get(0))
}

/// The version that a schema with this comment has, if that is for this one.
pub(super) fn usable(comment: Option<&str>) -> Result<usize, StoreError> {
    match comment.and_then(parse) {
        Some((version, oldest)) if version.min(oldest) <= VERSION => Ok(version),
        Some((version, _)) => Err(newer(version)),
        None => Err(refused(
            "the database has a schema named shiftboss that shiftboss did not make: use another database",
        )),
    }
}

/// The version that a comment names, and the oldest one that it is for, too.
fn parse(comment: &str) -> Option<(usize, usize)> {
    let versions = comment.strip_prefix(COMMENT)?;
    let (version, oldest) = versions.split_once(ALSO_FOR).unwrap_or((versions, versions));
    Some((version.parse().ok()?, oldest.parse().ok()?))
}

fn newer(version: usize) -> StoreError {
    StoreError::Newer(format!(
        "the queue has schema version {version}, made by a newer shiftboss; this one knows {VERSION}: update it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_names_versions() {
        assert_eq!(parse("shiftboss, queue version 3, also for 2"), Some((3, 2)));
        assert_eq!(parse("shiftboss, queue version 99"), Some((99, 99)));
        assert_eq!(parse("shiftboss, queue version 3, also for 2 "), None);
        assert_eq!(parse("their shiftboss"), None);
    }

    /// A server that is too old, and a database in which not every name can be written, are refused.
    #[test]
    fn a_server_must_be_fit() {
        assert_eq!(unfit(140_000, "UTF8"), None);
        assert_eq!(unfit(170_002, "UTF8"), None);
        assert!(unfit(130_014, "UTF8").unwrap().contains("PostgreSQL 13: use version 14"));
        assert!(unfit(90_624, "UTF8").unwrap().contains("PostgreSQL 9"));
        assert!(unfit(150_000, "SQL_ASCII").unwrap().contains("SQL_ASCII"));
    }
}
