//! The daemons of a queue and its relays, as `shiftboss status` shows them.
//!
//! Relays are daemons with a process, which version 1 of the schema does not have.

use shiftboss_actors::store::answers::{DaemonState, DaemonStatus, RelayStatus};
use shiftboss_protocol::model::UnixSeconds;
use tokio_postgres::{Error, Row};

use super::Snapshot;

/// A daemon that was not heard of for so many seconds is shown as silent, whether the others took it for dead or not.
const SILENT_SECONDS: i64 = 5;

/// $1: classic jobs that were started before are not out any longer.
const DAEMONS: &str = "WITH out AS MATERIALIZED (SELECT daemon, count(*) AS jobs FROM attempts
        WHERE finished IS NULL AND (lease IS NOT NULL OR started_ms / 1000 >= $1::int8) GROUP BY daemon)
    SELECT d.name, d.version, d.pid, d.started, d.gone_at, d.beat_at, d.lost,
        ARRAY(SELECT o.name FROM fetcher_owners o WHERE o.daemon = d.daemon AND left_at IS NULL ORDER BY o.name COLLATE \"C\"),
        coalesce(out.jobs, 0), nullif(split_part(owner, ' ', 2), ''), substring(owner FROM '^\\S* \\S* (.*)'), d.drains_since
    FROM daemons d LEFT JOIN out USING (daemon) WHERE to_jsonb(d) ->> 'process' IS NULL ORDER BY d.name COLLATE \"C\"";

const RELAYS: &str = "WITH held AS MATERIALIZED (SELECT daemon, count(*) AS jobs FROM attempts
        WHERE finished IS NULL AND lease IS NOT NULL GROUP BY daemon)
    SELECT substr(d.name, 7), coalesce(started, beat_at), lost OR pid IS NULL, lost AND pid IS NOT NULL, lost_since, lost_reason,
        (SELECT count(*) FROM rejected_files r WHERE r.daemon = d.daemon), coalesce(jobs, 0),
        ARRAY(SELECT o.name FROM fetcher_owners o WHERE o.daemon = d.daemon AND left_at IS NULL ORDER BY o.name COLLATE \"C\")
    FROM daemons d LEFT JOIN held USING (daemon) WHERE to_jsonb(d) ->> 'process' IS NOT NULL
    ORDER BY d.name COLLATE \"C\"";

pub(super) async fn relays(snapshot: &Snapshot) -> Result<Vec<RelayStatus>, Error> {
    let relay = |row: &Row| RelayStatus {
        name: row.get(0),
        joined_since: row.get(1),
        gone: row.get(2),
        silent: row.get(3),
        directory_lost_since: row.get(4),
        directory_lost_reason: row.get(5),
        rejected_files: row.get(6),
        in_flight: row.get(7),
        fetchers: row.get(8),
    };
    snapshot.rows(RELAYS, &[], relay).await
}

pub(super) async fn daemons(snapshot: &Snapshot) -> Result<Vec<DaemonStatus>, Error> {
    let read = |row: &Row| daemon(row, snapshot.now);
    snapshot.rows(DAEMONS, &[&snapshot.expired()], read).await
}

fn daemon(row: &Row, now: UnixSeconds) -> DaemonStatus {
    let (pid, gone_at): (Option<i64>, Option<i64>) = (row.get(2), row.get(4));
    let (beat_at, is_lost): (i64, bool) = (row.get(5), row.get(6));
    let (state, since) = match pid {
        None => (DaemonState::Stopped, gone_at.unwrap_or(beat_at)),
        Some(_) if is_lost || now - beat_at > SILENT_SECONDS => (DaemonState::Silent, beat_at),
        Some(_) => match row.get(11) {
            Some(since) => (DaemonState::Draining, since),
            None => (DaemonState::Running, row.get::<_, Option<i64>>(3).unwrap_or(beat_at)),
        },
    };
    DaemonStatus {
        name: row.get(0),
        state,
        since,
        version: row.get(1),
        host: row.get(9),
        pid,
        input_dir: row.get(10),
        fetchers: row.get(7),
        in_flight: row.get(8),
    }
}
