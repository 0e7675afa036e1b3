//! Makes the schema, or brings it up to date: numbered files under an advisory lock, each in a transaction.
//!
//! Called when a daemon opens the store, and by `shiftboss migrate`. The version is the comment of the schema, where an
//! administrator sees it, too.

use shiftboss_actors::store::StoreError;
use tokio_postgres::Client;

use super::error::classify;

/// What each version adds, from the first one on.
const VERSIONS: [&[&str]; 1] = [&[
    include_str!("schema/0001_tables.sql"),
    include_str!("schema/daemons.sql"),
    include_str!("schema/rule.sql"),
    include_str!("schema/tasks.sql"),
    include_str!("schema/jobs.sql"),
    include_str!("schema/operations.sql"),
    include_str!("schema/apply.sql"),
]];
/// What the comment of the schema begins with.
const COMMENT: &str = "shiftboss, schema version ";
/// Whoever makes the schema holds this lock of the database: "shiftbos" as a number.
const LOCK: i64 = 0x7368_6966_7462_6f73;

/// Makes what is missing.
///
/// # Errors
/// When the schema is somebody else's or newer, and when the server refuses something.
pub(super) async fn migrate(client: &Client) -> Result<(), StoreError> {
    let locked = format!("SELECT pg_advisory_lock({LOCK})");
    client.batch_execute(&locked).await.map_err(classify)?;
    let migrated = migrate_locked(client).await;
    let unlocked = format!("SELECT pg_advisory_unlock({LOCK})");
    client.batch_execute(&unlocked).await.map_err(classify)?;
    migrated
}

async fn migrate_locked(client: &Client) -> Result<(), StoreError> {
    let version = version(client).await?;
    for (before, files) in VERSIONS.iter().enumerate().skip(version) {
        let made = before + 1;
        // Functions call each other, in whatever order they are made.
        let mut script = String::from("BEGIN; SET LOCAL check_function_bodies = off;");
        if before == 0 {
            script += "CREATE SCHEMA shiftboss;";
        }
        script += &files.concat();
        script += &format!("COMMENT ON SCHEMA shiftboss IS '{COMMENT}{made}'; COMMIT");
        if let Err(error) = client.batch_execute(&script).await {
            client.batch_execute("ROLLBACK").await.map_err(classify)?;
            return Err(classify(error));
        }
    }
    Ok(())
}

/// The version of the schema that is there; 0: there is none.
async fn version(client: &Client) -> Result<usize, StoreError> {
    let sql =
        "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'shiftboss'";
    let Some(row) = client.query_opt(sql, &[]).await.map_err(classify)? else {
        return Ok(0);
    };
    let comment: Option<String> = row.get(0);
    let version = comment.as_deref().and_then(|text| text.strip_prefix(COMMENT)?.parse().ok());
    match version {
        Some(version) if version <= VERSIONS.len() => Ok(version),
        Some(version) => Err(StoreError::Fatal(format!(
            "the queue has schema version {version}, made by a newer shiftboss; this one knows {}: update it",
            VERSIONS.len()
        ))),
        None => Err(StoreError::Fatal(
            "the database has a schema named shiftboss that shiftboss did not make: use another database".to_owned(),
        )),
    }
}
