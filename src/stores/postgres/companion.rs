//! What a daemon does on the server beside its batches, on a connection of its own: it raises its counter once a second,
//! adopts what dead daemons had leased, tells the others of work, hears of theirs, forgets attempts that ended long ago, and
//! deletes lists that nobody has any more.
//!
//! Started by the store, which shares its [`Membership`]; ends with it. It knows no operation.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::store::{Changed, StoreError};
use shiftboss_protocol::backoff::Backoff;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_postgres::types::ToSql;
use tracing::info;

use super::connection::{CALL_MAX, Connection, RECONNECT, Server, limited, unanswered};
use super::error::{FENCED, classify};
use super::membership::Membership;
use super::notices::CHANNEL;
use super::peers::{Peer, Peers};
use super::schema;
use shiftboss_actors::clock::boot_time;

const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Others are told of work so often at the most: a notice in each transaction would cost a third of all jobs.
const NOTICE_EVERY: Duration = Duration::from_millis(10);
/// Rows of a list that are deleted at once: claims pass over what is locked.
pub(super) const ROWS_STEP: i64 = 250;
/// Numbers of attempts over which one step of forgetting goes.
const FORGOTTEN_AT_ONCE: i64 = 1_000;
/// What is done in steps is done for so long between two beats.
const STEPS_FOR: Duration = Duration::from_millis(300);
/// See the module's documentation. Never ends by itself.
///
/// history: so many attempts that ended are kept, the last ones; where daemons differ, the smallest number counts.
pub(super) async fn accompany(server: Server, membership: Arc<Membership>, history: u32) {
    let (mut peers, mut backoff) = (Peers::default(), Backoff::new(RECONNECT.0, RECONNECT.1));
    loop {
        let (connected, joined) = (Instant::now(), membership.joined());
        let Err(error) = serve(&server, &membership, &mut peers, history).await;
        membership.hears_nothing();
        if connected.elapsed() > RECONNECT.1 + CALL_MAX {
            backoff.reset();
        }
        // The store that joins anew ends this connection, too.
        if joined == membership.joined() {
            membership.note_silence(&error);
            // The StorageActor asks for its leases, and says so if the server is away.
            membership.tell_change(Changed::Leases);
        }
        sleep_until(Instant::now() + backoff.next_delay()).await;
    }
}

/// Whether no other connection, nor time, helps.
fn needs_somebody(error: &StoreError) -> bool {
    error.is_fatal() || matches!(error, StoreError::Denied(_))
}

/// Works until the connection fails.
async fn serve(
    server: &Server,
    membership: &Arc<Membership>,
    peers: &mut Peers,
    history: u32,
) -> Result<Infallible, StoreError> {
    let hears = Arc::clone(membership);
    let connection = server.connect_listening(move |notice| hears.hear(notice)).await?;
    let fail = |error: &StoreError| {
        if needs_somebody(error) {
            membership.fail(error);
        }
    };
    schema::require_usable(&connection.client).await.inspect_err(fail)?;
    // A beat does not wait for what somebody locked: it would be late.
    let begin = format!("SET lock_timeout = '1s'; LISTEN {CHANNEL}");
    limited(connection.client.batch_execute(&begin)).await?;
    // What came before is found by a look, and what could not be told is told now.
    membership.listens();
    let Err(error) = work(&connection, membership, peers, history).await;
    let error = schema::looked_at(&connection.client, error).await;
    fail(&error);
    Err(error)
}

/// The server's clock was set back: what lies further ahead than its delay comes after that delay. What somebody has locked is
/// about to change, and is not waited for.
const KEEP_DELAYS: &str = "
    WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::int8 AS now),
    held AS (SELECT h.key_id, kind FROM holds h, clock WHERE since > now AND until > since FOR UPDATE OF h SKIP LOCKED),
    delayed AS (SELECT place FROM bumps b, clock WHERE since > now AND due > since FOR UPDATE OF b SKIP LOCKED),
    holding AS (UPDATE holds h SET until = until - (since - now), since = now FROM clock, held
        WHERE (h.key_id, h.kind) = (held.key_id, held.kind))
    UPDATE bumps b SET due = due - (since - now), since = now FROM clock, delayed WHERE b.place = delayed.place";

/// Beats, chores and notices, on one connection.
async fn work(
    connection: &Connection,
    membership: &Membership,
    peers: &mut Peers,
    history: u32,
) -> Result<Infallible, StoreError> {
    let mut beats = interval(BEAT_EVERY);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_notice = Instant::now();
    let mut chores = Chores::default();
    // As if it had been set back, for what happened before this connection is not known.
    let mut server_clock = i64::MAX;
    loop {
        tokio::select! {
            _ = beats.tick() => {
                if let Some(clock) = beat(connection, membership, peers).await? {
                    if clock < server_clock {
                        limited(connection.client.execute(KEEP_DELAYS, &[])).await?;
                    }
                    server_clock = clock;
                }
                if let Some(test) = membership.test_of_notices() {
                    notify(connection, &test).await?;
                }
                if chores.were_done() {
                    membership.may_go_on();
                }
                chores = Chores::until(Instant::now() + STEPS_FOR, history);
            }
            () = ready(()), if chores.is_due() => chores.step(connection, membership).await?,
            () = membership.work.notified() => {
                sleep_until(last_notice + NOTICE_EVERY).await;
                last_notice = Instant::now();
                notify(connection, &membership.joined().0.to_string()).await?;
            }
        }
    }
}

/// Sends a notice. One that the server takes not, since too many wait there, is lost as others are: whoever waits looks for
/// himself.
async fn notify(connection: &Connection, text: &str) -> Result<(), StoreError> {
    let notify = "SELECT pg_notify($1, $2)";
    let values: [&(dyn ToSql + Sync); 2] = [&CHANNEL, &text];
    let sent = timeout(CALL_MAX, connection.client.query_one(notify, &values)).await;
    match sent.map_err(|_| unanswered())? {
        Err(error) if error.as_db_error().is_none() || connection.client.is_closed() => {
            Err(classify(error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Says that this daemon lives, and looks who else does. Answers with the second of the server's clock, if it lives.
async fn beat(
    connection: &Connection,
    membership: &Membership,
    peers: &mut Peers,
) -> Result<Option<i64>, StoreError> {
    let (daemon, epoch) = membership.joined();
    // Whoever makes the schema newer may leave this connection be.
    let sql = "SELECT daemon, epoch, beat, is_stopped, adoptions, obj_description('shiftboss'::regnamespace, 'pg_namespace'),
        extract(epoch FROM clock_timestamp())::int8 FROM beat($1, $2)";
    let rows = match limited(connection.client.query(sql, &[&daemon, &epoch])).await {
        Err(StoreError::Rejected(text)) if text == FENCED => {
            membership.lose(epoch);
            return Ok(None);
        }
        answered => answered?,
    };
    rows.first().map_or(Ok(0), |row| schema::usable(row.get(5)))?;
    let read = |row: &tokio_postgres::Row| Peer {
        daemon: row.get(0),
        epoch: row.get(1),
        beat: row.get(2),
        is_stopped: row.get(3),
    };
    membership.note_heard();
    let (own, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.get::<_, i32>(0) == daemon);
    own.iter().for_each(|row| membership.note_adoptions(row.get(4)));
    let found: Vec<Peer> = others.into_iter().map(read).collect();
    for dead in peers.look(boot_time(), &found) {
        adopt(connection, membership, dead).await?;
    }
    Ok(rows.first().map(|row| row.get(6)))
}

/// What is done in small steps between two beats, so that notices do not wait for long: each kind in turn, while there is more.
#[derive(Default)]
struct Chores {
    left: VecDeque<(String, i64)>,
    until: Option<Instant>,
}

impl Chores {
    /// What each daemon does for all: it keeps the last attempts of those that ended, and deletes the lists of which nobody has the
    /// files any more.
    fn until(end: Instant, history: u32) -> Self {
        let forget = (format!("SELECT forget_ended($1, $2, {history}, $3)"), FORGOTTEN_AT_ONCE);
        let tidy = ("SELECT tidy_fetchers($1, $2, $3)".to_owned(), ROWS_STEP);
        Self { left: [forget, tidy].into(), until: Some(end) }
    }

    fn is_due(&self) -> bool {
        !self.left.is_empty() && self.until.is_some_and(|until| Instant::now() < until)
    }

    fn were_done(&self) -> bool {
        self.until.is_some()
    }

    async fn step(
        &mut self,
        connection: &Connection,
        membership: &Membership,
    ) -> Result<(), StoreError> {
        let Some((chore, step)) = self.left.pop_front() else {
            return Ok(());
        };
        let (daemon, epoch) = membership.joined();
        let values: [&(dyn ToSql + Sync); 3] = [&daemon, &epoch, &step];
        let asked = timeout(CALL_MAX, connection.client.query_one(&chore, &values)).await;
        match asked.map_err(|_| unanswered())? {
            Ok(row) if row.get(0) => self.left.push_back((chore, step)),
            Ok(_) => {}
            // What fails because others write, or because this daemon is lost, is for the next beat.
            Err(error) => {
                let error = classify(error);
                if needs_somebody(&error) || connection.client.is_closed() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

async fn adopt(
    connection: &Connection,
    membership: &Membership,
    dead: Peer,
) -> Result<(), StoreError> {
    let (daemon, epoch) = membership.joined();
    let sql = "SELECT adopt($1, $2, $3, $4, $5), (SELECT name FROM daemons WHERE daemon = $3)";
    let row = match limited(
        connection.client.query_one(sql, &[&daemon, &epoch, &dead.daemon, &dead.epoch, &dead.beat]),
    )
    .await
    {
        // Others look, too.
        Err(StoreError::Busy(_) | StoreError::Rejected(_)) if !connection.client.is_closed() => {
            return Ok(());
        }
        answered => answered?,
    };
    if let Some(jobs) = row.get::<_, Option<i64>>(0) {
        if jobs > 0 {
            info!(
                daemon = row.get::<_, Option<&str>>(1),
                jobs, "Another daemon is dead or was stopped: its leased jobs are this one's."
            );
        }
        membership.tell_change(Changed::Leases);
    }
    Ok(())
}
