//! What a daemon does on the server beside its batches, on a connection of its own: it raises its counter once a second,
//! adopts what dead daemons had leased, tells the others of work, hears of theirs, forgets attempts that ended long ago, and
//! deletes lists that nobody has any more.
//!
//! Started by the store, which shares its [`Membership`]; ends with it.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use shiftboss_actors::store::{Changed, StoreError, StoreResult};
use shiftboss_protocol::backoff::Backoff;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_postgres::types::ToSql;
use tracing::{info, warn};

use super::connection::{CALL_MAX, Connection, RECONNECT, Server, limited, unanswered};
use super::error::{FENCED, classify};
use super::peers::{Peer, Peers};

const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Others are told of work so often at the most: a notice in each transaction would cost a third of all jobs.
const NOTICE_EVERY: Duration = Duration::from_millis(10);
/// Rows of a list that are deleted at once: claims pass over what is locked.
pub(super) const ROWS_STEP: i64 = 250;
/// What each daemon does for all, and how much of it at once: it keeps the last 100,000 attempts of those that ended, and
/// deletes the lists of which nobody has the files any more.
const CHORES: [(&str, i64); 2] = [
    ("SELECT forget_ended($1, $2, 100000, $3)", 1_000),
    ("SELECT tidy_fetchers($1, $2, $3)", ROWS_STEP),
];
/// What is done in steps is done for so long between two beats.
const STEPS_FOR: Duration = Duration::from_millis(300);
/// So many connections that fail one after the other are told of, unless it is the server that is away.
const WARN_AT: u32 = 3;
/// The channel of notices; each carries its sender's number.
const CHANNEL: &str = "shiftboss";

/// What the store and its companion know of each other.
#[derive(Default)]
pub(super) struct Membership {
    state: Mutex<State>,
    /// There is work that others are to be told of.
    work: Notify,
}

#[derive(Default)]
struct State {
    /// The daemon's number and its epoch.
    joined: (i32, i64),
    /// It was taken for dead.
    is_lost: bool,
    /// The store's last call failed, too.
    is_away: bool,
    /// How often it adopted another one's leases.
    adoptions: i64,
    /// Whether the queue was paused at the last call.
    is_paused: Option<bool>,
    /// It was warned that beats do not arrive.
    is_silent: bool,
    /// What the companion failed of on a connection that it had, and what only somebody who looks at the schema can mend. A
    /// login that is refused for a while is none: the store's own connection may stand.
    failure: Option<StoreError>,
    changed: Option<Changed>,
    waker: Option<Waker>,
}

impl Membership {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store joined, or joined anew.
    pub(super) fn join(&self, daemon: i32, epoch: i64) {
        let mut state = self.state();
        (state.joined, state.is_lost) = ((daemon, epoch), false);
    }

    pub(super) fn has_joined(&self) -> bool {
        self.state().joined != (0, 0)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// Whether the store's last call reached the server.
    pub(super) fn note_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// This daemon made work.
    pub(super) fn tell_work(&self) {
        self.work.notify_one();
    }

    /// The store's leases, or its queue, are not what the StorageActor knows.
    pub(super) fn tell_change(&self, change: Changed) {
        let mut state = self.state();
        state.changed = state.changed.max(Some(change));
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn poll_changed(&self, task: &Context<'_>) -> Poll<Changed> {
        let mut state = self.state();
        if let Some(changed) = state.changed.take() {
            return Poll::Ready(changed);
        }
        state.waker = Some(task.waker().clone());
        Poll::Pending
    }

    /// The answer to an adoption may be lost; the number of them is not.
    fn note_adoptions(&self, adoptions: i64) {
        if std::mem::replace(&mut self.state().adoptions, adoptions) != adoptions {
            self.tell_change(Changed::Leases);
        }
    }

    /// Operators give their order to any daemon; all say that they noticed.
    pub(super) fn note_pause(&self, is_paused: bool) {
        match (self.state().is_paused.replace(is_paused), is_paused) {
            (Some(false), true) => info!("The queue is paused: nothing is handed out."),
            (Some(true), false) => info!("The queue is not paused any more."),
            _ => {}
        }
    }

    /// The server does not hear that this daemon lives. If it is away, the StorageActor says so.
    fn note_silence(&self, error: &StoreError) {
        let mut state = self.state();
        if !state.is_away && !std::mem::replace(&mut state.is_silent, true) {
            warn!(%error, "The server cannot be told that this daemon is alive: other daemons will take its jobs.");
        }
    }

    fn note_heard(&self) {
        if std::mem::take(&mut self.state().is_silent) {
            info!("The server is told again that this daemon is alive.");
        }
    }

    /// What the daemon is to end with.
    pub(super) fn failure(&self) -> StoreResult<()> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    fn lose(&self, epoch: i64) {
        let mut state = self.state();
        if state.joined.1 == epoch {
            state.is_lost = true;
            drop(state);
            // The StorageActor asks for its leases, and so has the store join anew.
            self.tell_change(Changed::Leases);
        }
    }
}

/// See the module's documentation. Never ends by itself.
pub(super) async fn accompany(server: Server, membership: Arc<Membership>) {
    let (mut peers, mut backoff) = (Peers::default(), Backoff::new(RECONNECT.0, RECONNECT.1));
    let mut failed = 0;
    loop {
        let (connected, joined) = (Instant::now(), membership.state().joined);
        let served = serve(&server, &membership, &mut peers).await;
        if connected.elapsed() > RECONNECT.1 + CALL_MAX {
            backoff.reset();
            failed = 0;
        }
        // The store that joins anew ends this connection, too.
        if let Err(error) = served
            && joined == membership.state().joined
        {
            failed += 1;
            if failed >= WARN_AT {
                membership.note_silence(&error);
            }
            // The StorageActor asks for its leases, and says so if the server is away.
            membership.tell_change(Changed::Leases);
        }
        sleep_until(Instant::now() + backoff.next_delay()).await;
    }
}

/// Works until the connection fails.
async fn serve(
    server: &Server,
    membership: &Arc<Membership>,
    peers: &mut Peers,
) -> Result<(), StoreError> {
    let hears = Arc::clone(membership);
    let heard = move |sender: &str| {
        if sender != hears.state().joined.0.to_string() {
            hears.tell_change(Changed::Queue);
        }
    };
    let connection = server.connect_listening(heard).await?;
    // A beat does not wait for what somebody locked: it would be late.
    let begin = format!("SET lock_timeout = '1s'; LISTEN {CHANNEL}");
    limited(connection.client.batch_execute(&begin)).await?;
    // What came before is found by a look.
    membership.tell_change(Changed::Queue);
    work(&connection, membership, peers).await.inspect_err(|error| {
        if error.is_fatal() {
            membership.state().failure = Some(error.clone());
        }
    })
}

/// Beats, chores and notices, on one connection.
async fn work(
    connection: &Connection,
    membership: &Membership,
    peers: &mut Peers,
) -> Result<(), StoreError> {
    let mut beats = interval(BEAT_EVERY);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_notice = Instant::now();
    let mut chores = Chores::default();
    loop {
        tokio::select! {
            _ = beats.tick() => {
                beat(connection, membership, peers).await?;
                chores = Chores::until(Instant::now() + STEPS_FOR);
            }
            () = ready(()), if chores.is_due() => chores.step(connection, membership).await?,
            () = membership.work.notified() => {
                sleep_until(last_notice + NOTICE_EVERY).await;
                last_notice = Instant::now();
                let sender = membership.state().joined.0.to_string();
                limited(connection.client.query_one("SELECT pg_notify($1, $2)", &[&CHANNEL, &sender])).await?;
            }
        }
    }
}

/// Says that this daemon lives, and looks who else does.
async fn beat(
    connection: &Connection,
    membership: &Membership,
    peers: &mut Peers,
) -> Result<(), StoreError> {
    let (daemon, epoch) = membership.state().joined;
    let sql = "SELECT daemon, epoch, beat, is_stopped, adoptions FROM beat($1, $2)";
    let rows = match limited(connection.client.query(sql, &[&daemon, &epoch])).await {
        Err(StoreError::Rejected(text)) if text == FENCED => {
            membership.lose(epoch);
            return Ok(());
        }
        answered => answered?,
    };
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
    Ok(())
}

/// What is done in small steps between two beats, so that notices do not wait for long: each kind in turn, while there is more.
#[derive(Default)]
struct Chores {
    left: VecDeque<(&'static str, i64)>,
    until: Option<Instant>,
}

impl Chores {
    fn until(end: Instant) -> Self {
        Self { left: CHORES.into(), until: Some(end) }
    }

    fn is_due(&self) -> bool {
        !self.left.is_empty() && self.until.is_some_and(|until| Instant::now() < until)
    }

    async fn step(
        &mut self,
        connection: &Connection,
        membership: &Membership,
    ) -> Result<(), StoreError> {
        let Some((chore, step)) = self.left.pop_front() else {
            return Ok(());
        };
        let (daemon, epoch) = membership.state().joined;
        let values: [&(dyn ToSql + Sync); 3] = [&daemon, &epoch, &step];
        let asked = timeout(CALL_MAX, connection.client.query_one(chore, &values)).await;
        match asked.map_err(|_| unanswered())? {
            Ok(row) if row.get(0) => self.left.push_back((chore, step)),
            Ok(_) => {}
            // What fails because others write, or because this daemon is lost, is for the next beat.
            Err(error) => {
                let error = classify(error);
                if error.is_fatal() || connection.client.is_closed() {
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
    let (daemon, epoch) = membership.state().joined;
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

/// Goes on while the machine sleeps.
pub(super) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}
