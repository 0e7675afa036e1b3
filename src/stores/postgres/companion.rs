//! What a daemon does on the server besides its batches, on a connection of its own: it raises its counter once a
//! second, takes daemons for dead whose counters stand still, and sends and receives notices of work.
//!
//! Started by the store, which shares its [`Membership`]; ends with it. It knows no operation.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::store::Changed;
use shiftboss_protocol::backoff::Backoff;
use shiftboss_queue::error::StoreError;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::connection::{CALL_MAX, RECONNECT, Server, limited, unanswered};
use super::daemons;
use super::membership::Membership;
use super::peers::Peers;
use super::schema;
use shiftboss_actors::clock::boot_time;
use shiftboss_postgres::error::classify;

/// The channel of notices; each carries its sender's number.
pub(super) const CHANNEL: &str = "shiftboss";
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Shortest pause between two notices of work: a notice in each transaction would cost a third of all jobs.
const NOTICE_EVERY: Duration = Duration::from_millis(10);

/// See the module's documentation. Never ends by itself.
pub(super) async fn accompany(server: Server, membership: Arc<Membership>) {
    let (mut peers, mut backoff) = (Peers::default(), Backoff::new(RECONNECT.0, RECONNECT.1));
    loop {
        let (connected, joined) = (Instant::now(), membership.joined());
        let Err(error) = serve(&server, &membership, &mut peers).await;
        membership.hears_nothing();
        if connected.elapsed() > RECONNECT.1 + CALL_MAX {
            backoff.reset();
        }
        // The store that joins anew ends this connection, too.
        if joined == membership.joined() {
            membership.note_silence(&error);
            // The StorageActor then asks for its leases, and reports if the server is away.
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
) -> Result<Infallible, StoreError> {
    let hears = Arc::clone(membership);
    let client = server.connect_listening(move |notice| hears.hear(notice)).await?;
    let fail = |error: &StoreError| {
        if needs_somebody(error) {
            membership.fail(error);
        }
    };
    schema::require_usable(&client).await.inspect_err(fail)?;
    // A beat does not wait for locks: it would be late.
    let begin = format!("SET lock_timeout = '1s'; LISTEN {CHANNEL}");
    limited(client.batch_execute(&begin)).await?;
    // Work that came before is found by a look, and notices that could not be sent are sent now.
    membership.listens();
    let Err(error) = work(&client, membership, peers).await;
    let error = schema::looked_at(&client, error).await;
    fail(&error);
    Err(error)
}

/// Beats and notices, on one connection.
async fn work(
    client: &Client,
    membership: &Membership,
    peers: &mut Peers,
) -> Result<Infallible, StoreError> {
    let mut beats = interval(BEAT_EVERY);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_notice = Instant::now();
    // As if it had been set back, because what happened before this connection is unknown.
    let mut server_clock = i64::MAX;
    loop {
        tokio::select! {
            _ = beats.tick() => {
                if let Some(clock) = beat(client, membership, peers).await? {
                    if clock < server_clock {
                        membership.note_clock_set();
                    }
                    server_clock = clock;
                }
                membership.may_go_on();
            }
            () = membership.work.notified() => {
                sleep_until(last_notice + NOTICE_EVERY).await;
                last_notice = Instant::now();
                notify(client, &membership.joined().0.to_string()).await?;
            }
        }
    }
}

/// Sends a notice. If the server refuses it, because too many wait there, it is lost like others: waiting daemons look
/// by themselves.
async fn notify(client: &Client, text: &str) -> Result<(), StoreError> {
    let notify = "SELECT pg_notify($1, $2)";
    let values: [&(dyn ToSql + Sync); 2] = [&CHANNEL, &text];
    let sent = timeout(CALL_MAX, client.query_one(notify, &values)).await;
    match sent.map_err(|_| unanswered())? {
        Err(error) if error.as_db_error().is_none() || client.is_closed() => Err(classify(error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Says that this daemon lives, and looks who else does. Answers with the second of the server's clock, if it lives.
async fn beat(
    client: &Client,
    membership: &Membership,
    peers: &mut Peers,
) -> Result<Option<i64>, StoreError> {
    let place = membership.joined();
    let heard = daemons::beat(client, place).await?;
    if !heard.lives {
        membership.lose(place.1);
        return Ok(None);
    }
    membership.note_heard(heard.beat);
    if peers.count() != heard.others.len() {
        // One came or went: whose jobs are whose may be another thing.
        membership.tell_change(Changed::Leases);
    }
    for dead in peers.look(boot_time(), &heard.others) {
        match daemons::retire(client, dead).await {
            Ok(Some(gone)) => membership.note_dead(gone),
            Ok(None) => {}
            // Others look, too.
            Err(StoreError::Busy(_)) if !client.is_closed() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(heard.clock))
}
