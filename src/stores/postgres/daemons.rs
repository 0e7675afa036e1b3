//! The table of daemons, in plain statements: a daemon joins under its name, lives, leaves, or is taken for dead. Each joining has an epoch of its own;
//! the records' crate fences off what a daemon does under an epoch that is not its last.
//!
//! Called by the store, its companion and `shiftboss forget --daemon`. It does not know what daemons own.

use shiftboss_postgres::ALONE;
use shiftboss_queue::documents::{ARRIVING, Gone, MEMBER, MOVED};
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::connection::limited;
use super::peers::{Asked, Peer};
use super::schema;
use crate::stores::transfer;

/// Who has a name, and whether it is to be left to him: another process lives that has gone on since $3. One that was at the same place as $2 (what is
/// behind its @) and has no connection any more has ended: so a daemon that is started again need not wait.
const HOLDER: &str = "SELECT daemon, pid, version, beat, connections,
        process <> $2 AND gone IS NULL AND beat IS DISTINCT FROM $3::int8
        AND (substr(process, strpos(process, '@')) <> substr($2, strpos($2, '@')) OR EXISTS (SELECT FROM pg_stat_activity
            WHERE application_name = connections AND datname = current_database() AND pid <> pg_backend_pid()))
    FROM daemons WHERE name = $1";
/// Ends the connections of a name that began by a second: one that waits for a frozen client would hold its locks.
const END_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()
        AND backend_start <= coalesce(to_timestamp($2::int8), 'infinity') AND pg_has_role(usesysid, 'USAGE')";
/// $5: by the same process, which has been running since it joined first.
const JOIN: &str = "INSERT INTO daemons AS d (name, process, pid, version, socket, connections, epoch, started, beat, beat_at, adopted)
    VALUES ($1, $2, $3, $4, $6, current_setting('application_name'), nextval('epochs'), floor(extract(epoch FROM clock_timestamp())), 0,
        floor(extract(epoch FROM clock_timestamp())), false)
    ON CONFLICT (name) DO UPDATE SET process = excluded.process, pid = excluded.pid, socket = excluded.socket, version = excluded.version,
        connections = excluded.connections, epoch = excluded.epoch, beat = d.beat + 1, beat_at = excluded.beat_at,
        started = CASE WHEN $5 THEN d.started ELSE excluded.started END, gone = NULL, gone_at = NULL, adopted = false
    RETURNING daemon, epoch";
/// Numbers of attempts are above all that were handed out, though the server fell back to an older state or the queue was begun anew: no queue
/// hands out a million a second.
const RAISE_NUMBERS: &str = "SELECT setval('numbers', greatest(last_value, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)) FROM numbers";
/// A daemon lives; those are answered whose jobs nobody has adopted, with the time, and what the schema is called. It asks for no
/// table but its own, for whoever locks another one makes nobody dead.
const BEAT: &str =
    "WITH own AS (UPDATE daemons SET beat = beat + 1, beat_at = floor(extract(epoch FROM clock_timestamp()))
        WHERE daemon = $1 AND epoch = $2 RETURNING daemon)
    SELECT daemon, name, epoch, beat, gone, coalesce(gone_at, beat_at), EXISTS (SELECT FROM own),
        floor(extract(epoch FROM clock_timestamp()))::int8, obj_description(current_schema()::regnamespace, 'pg_namespace')
    FROM daemons WHERE NOT adopted";
/// From now on a daemon does nothing, if it has not gone on since.
const RETIRE: &str =
    "UPDATE daemons SET epoch = nextval('epochs'), gone = 'silent', gone_at = floor(extract(epoch FROM clock_timestamp()))
    WHERE daemon = $1 AND epoch = $2 AND beat = $3 AND gone IS NULL RETURNING epoch, gone_at";
const LEAVE: &str =
    "UPDATE daemons SET epoch = nextval('epochs'), gone = 'stopped', gone_at = floor(extract(epoch FROM clock_timestamp()))
    WHERE daemon = $1 AND epoch = $2";
const ADOPTED: &str = "UPDATE daemons SET adopted = true WHERE daemon = $1 AND epoch = $2";

pub(super) struct Joining<'a> {
    pub(super) name: &'a str,
    pub(super) process: &'a str,
    pub(super) socket: &'a str,
    /// The same process has joined before.
    pub(super) is_again: bool,
    /// How far another one's counter is that stands still.
    pub(super) beat: Option<i64>,
}

/// A daemon's number, and the epoch with which it joined.
pub(super) type Place = (i64, i64);

/// Joins, if no living daemon has the name: from then on nothing is done under an earlier epoch.
pub(super) async fn join(client: &Client, it: Joining<'_>) -> StoreResult<Asked<Place>> {
    if let Some(taken) = taken(client, &it).await? {
        return Ok(taken);
    }
    limited(client.batch_execute(ALONE)).await?;
    let joined = join_alone(client, &it).await;
    let end = if matches!(joined, Ok(Asked::Had(_))) { "COMMIT" } else { "ROLLBACK" };
    limited(client.batch_execute(end)).await?;
    joined
}

async fn join_alone(client: &Client, it: &Joining<'_>) -> StoreResult<Asked<Place>> {
    require_here(client).await?;
    if let Some(taken) = taken(client, it).await? {
        return Ok(taken);
    }
    let (pid, version) = (i64::from(std::process::id()), env!("CARGO_PKG_VERSION"));
    let values: [&(dyn ToSql + Sync); 6] =
        [&it.name, &it.process, &pid, &version, &it.is_again, &it.socket];
    let row = limited(client.query_one(JOIN, &values)).await?;
    limited(client.execute(RAISE_NUMBERS, &[])).await?;
    Ok(Asked::Had((row.get(0), row.get(1))))
}

/// Who has the name; `None`: it is free, and no connection under it is left.
async fn taken(client: &Client, it: &Joining<'_>) -> StoreResult<Option<Asked<Place>>> {
    let values: [&(dyn ToSql + Sync); 3] = [&it.name, &it.process, &it.beat];
    let Some(row) = limited(client.query_opt(HOLDER, &values)).await? else { return Ok(None) };
    if row.get(5) {
        return Ok(Some(Asked::Taken(shown(&row), row.get(3))));
    }
    end_connections(client, row.get(4), None).await?;
    Ok(None)
}

fn shown(row: &Row) -> String {
    format!("process {}, version {}", row.get::<_, i64>("pid"), row.get::<_, &str>("version"))
}

async fn end_connections(client: &Client, name: &str, until: Option<i64>) -> StoreResult<()> {
    limited(client.execute(END_CONNECTIONS, &[&name, &until])).await.map(drop)
}

/// The queue is here, and all of it.
async fn require_here(client: &Client) -> StoreResult<()> {
    let sql = "SELECT name, value FROM documents WHERE name = ANY ($1)";
    let marks = limited(client.query(sql, &[&[MOVED.name(), ARRIVING.name()].as_slice()])).await?;
    for row in marks {
        let (name, text): (&str, &str) = (row.get(0), row.get(1));
        let Some((_, mark)) = MOVED.read(name, text) else { continue };
        let refused = match name == MOVED.name() {
            true => transfer::gone("this server", &mark),
            false => transfer::unfinished("this server", &mark),
        };
        return Err(StoreError::Fatal(refused.to_string()));
    }
    Ok(())
}

pub(super) struct Heard {
    /// This daemon was not taken for dead.
    pub(super) lives: bool,
    pub(super) others: Vec<Peer>,
    /// The second of the server's clock.
    pub(super) clock: i64,
    /// This daemon's counter, as far as it is certain that it was raised.
    pub(super) beat: i64,
}

/// `Newer`: the schema is no longer for this version.
pub(super) async fn beat(client: &Client, (daemon, epoch): Place) -> StoreResult<Heard> {
    let rows = limited(client.query(BEAT, &[&daemon, &epoch])).await?;
    // An upgrade of the schema need not end this connection.
    rows.first().map_or(Ok(0), |row| schema::usable(row.get(8)))?;
    let lives = rows.first().is_some_and(|row| row.get(6));
    let clock = rows.first().map_or(i64::MIN, |row| row.get(7));
    let (own, others): (Vec<&Row>, _) = rows.iter().partition(|row| row.get::<_, i64>(0) == daemon);
    let beat = own.first().map_or(0, |row| row.get(3));
    Ok(Heard { lives, others: others.into_iter().map(peer).collect(), clock, beat })
}

/// The counter of a name; `None`: there is no such daemon.
pub(super) async fn beat_of(client: &Client, name: &str) -> StoreResult<Option<i64>> {
    let sql = "SELECT beat FROM daemons WHERE name = $1";
    Ok(limited(client.query_opt(sql, &[&name])).await?.map(|row| row.get(0)))
}

fn peer(row: &Row) -> Peer {
    Peer {
        daemon: row.get(0),
        member: MEMBER.of(row.get(1)).into(),
        epoch: row.get(2),
        beat: row.get(3),
        gone: row.get::<_, Option<&str>>(4).map(|gone| match gone {
            "stopped" => Gone::Stopped,
            _ => Gone::Silent,
        }),
        seen: row.get(5),
    }
}

/// Takes a daemon for dead, if its counter has not moved since, and it was not stopped: it can no longer write. `None`:
/// it lives.
pub(super) async fn retire(client: &Client, mut peer: Peer) -> StoreResult<Option<Peer>> {
    if peer.gone.is_some() {
        return Ok(Some(peer));
    }
    let name = "SELECT connections FROM daemons WHERE daemon = $1 AND epoch = $2 AND beat = $3";
    let values: [&(dyn ToSql + Sync); 3] = [&peer.daemon, &peer.epoch, &peer.beat];
    let Some(row) = limited(client.query_opt(name, &values)).await? else { return Ok(None) };
    // Not a connection with which it is just joining anew.
    end_connections(client, row.get(0), Some(peer.seen.saturating_add(1))).await?;
    limited(client.batch_execute(ALONE)).await?;
    let retired = limited(client.query_opt(RETIRE, &values)).await;
    limited(client.batch_execute("COMMIT")).await?;
    Ok(retired?.map(|row| {
        (peer.epoch, peer.gone, peer.seen) = (row.get(0), Some(Gone::Silent), row.get(1));
        peer
    }))
}

/// Others have adopted the daemon's jobs by now.
pub(super) async fn note_adopted(client: &Client, peer: &Peer) -> StoreResult<()> {
    limited(client.execute(ADOPTED, &[&peer.daemon, &peer.epoch])).await.map(drop)
}

pub(super) async fn leave(client: &Client, (daemon, epoch): Place) -> StoreResult<()> {
    limited(client.execute(LEAVE, &[&daemon, &epoch])).await.map(drop)
}

/// The daemon of a name, with its identity; `None`: there is no such daemon.
pub(super) async fn find(client: &Client, name: &str) -> StoreResult<Option<(Peer, String)>> {
    let sql = "SELECT daemon, name, epoch, beat, gone, coalesce(gone_at, beat_at), pid, version FROM daemons WHERE name = $1";
    let row = limited(client.query_opt(sql, &[&name])).await?;
    Ok(row.map(|row| (peer(&row), shown(&row))))
}

/// Whether another daemon lives that may adopt what this one saw to.
pub(super) async fn is_to_be_adopted(client: &Client, peer: &Peer) -> StoreResult<bool> {
    let sql = "SELECT EXISTS (SELECT FROM daemons WHERE daemon = $1 AND NOT adopted) AND EXISTS (SELECT FROM daemons
        WHERE daemon <> $1 AND gone IS NULL AND beat_at > floor(extract(epoch FROM clock_timestamp())) - 5)";
    Ok(limited(client.query_one(sql, &[&peer.daemon])).await?.get(0))
}

/// Deletes the daemon's name.
pub(super) async fn forget(client: &Client, peer: &Peer) -> StoreResult<()> {
    let sql = "WITH gone AS (DELETE FROM daemons WHERE daemon = $1 RETURNING daemon)
        DELETE FROM credits WHERE daemon IN (SELECT daemon FROM gone)";
    limited(client.execute(sql, &[&peer.daemon])).await.map(drop)
}
