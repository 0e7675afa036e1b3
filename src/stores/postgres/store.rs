//! The port [`Store`]: the queue's engine carries batches out, over the records on a server; this module handles the
//! connection and the daemon's membership.
//!
//! Called by the StorageActor, which gathers the next batch meanwhile. The connection is made when it is needed, and
//! made anew after it failed: then the result of the last batch may not be known, and the jobs that it handed out are
//! undone, because no worker got them.

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_actors::clock::{Clock, SystemClock, boot_time};
use shiftboss_actors::reconnect::Reconnect;
use shiftboss_actors::store::{Changed, Checkpoint, Store, StoreFuture};
use shiftboss_postgres::PostgresRecords;
use shiftboss_protocol::model::Attempt;
use shiftboss_queue::documents::{Gone, MEMBER};
use shiftboss_queue::engine::{self, Engine, Own};
use shiftboss_queue::error::{Rejected, StoreError, StoreResult};
use shiftboss_queue::operation::{Dispatched, JobEnd, Operation, Outcome};
use shiftboss_queue::record::Millis;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::companion::accompany;
use super::connection::{CALL_MAX, RECONNECT, Server, unanswered};
use super::daemons::{self, Place};
use super::membership::Membership;
use super::peers::{Asked, Peer, wait_out};
use super::pooler;
use super::schema;
use crate::stores::Found;
use crate::stores::options::{Joining, Options};

/// How often, at most, a batch is repeated after conflicts with those of others.
const MEETINGS_MAX: u32 = 20;
/// The server's clock counts, whatever time is passed to the engine.
const NO_TIME: Millis = 0;

/// The queue in a PostgreSQL database, as one daemon has it.
pub(crate) struct PostgresStore {
    server: Server,
    joining: Joining,
    /// Its process, and after an @ its place: the machine and the input directory. Machines and containers that are
    /// copies of each other may have the same place.
    owner: String,
    options: Options,
    joined: Option<Joined>,
    membership: Arc<Membership>,
    /// Begun with the first call, on its runtime.
    companion: Option<JoinHandle<()>>,
    reconnect: Reconnect,
    /// Attempts handed out by batches whose result is not known.
    unheard: Vec<Attempt>,
    /// At the last joining.
    pub(crate) found: Found,
    /// Recorded by batches, and not reported yet.
    ends: Vec<JobEnd>,
}

/// A connection on which this daemon may write.
struct Joined {
    engine: Engine<PostgresRecords>,
    place: Place,
}

type Outcomes = Vec<Result<Outcome, Rejected>>;

impl PostgresStore {
    /// Makes the schema if it is missing, and joins the queue. The connection is not kept: the first call of the store
    /// makes the next one, on its own runtime.
    pub(crate) async fn open(
        server: Server,
        joining: Joining,
        owner: String,
        options: Options,
    ) -> StoreResult<Self> {
        schema::migrate(&pooler::refuse(&server).await?).await?;
        let server = server.named(&joining.name);
        let mut store = Self {
            server,
            membership: Arc::new(Membership::new(joining.polls)),
            joining,
            owner,
            options,
            joined: None,
            companion: None,
            reconnect: Reconnect::new(RECONNECT),
            unheard: Vec::new(),
            found: Found::default(),
            ends: Vec::new(),
        };
        // From a daemon that has the name and stands still, it is taken.
        match wait_out(async |known| store.ask_for_name(known).await).await? {
            Ok(_) => Ok(store),
            Err(holder) => Err(taken(&store.joining.name, &holder)),
        }
    }

    /// Connects, and joins the queue: from then on nothing that was sent before under this name is carried out.
    async fn ask_for_name(&mut self, beat: Option<i64>) -> StoreResult<Asked<Joined>> {
        let client = self.server.connect().await?;
        schema::require_usable(&client).await?;
        let (Joining { name, takeover, .. }, process) = (&self.joining, &*self.owner);
        let socket = &*self.joining.socket.to_string_lossy();
        let is_again = self.membership.has_joined();
        let beats = daemons::beat_of(&client, name).await?;
        let went_back = is_again && beats.is_none_or(|beat| beat < self.membership.beat());
        let asked = daemons::Joining { name, process, socket, is_again, beat };
        let place = match daemons::join(&client, asked).await? {
            Asked::Had(place) => place,
            Asked::Taken(holder, beat) => return Ok(Asked::Taken(holder, beat)),
        };
        let records = PostgresRecords::new(client, place.0).fenced(place.1);
        let takeover = i64::try_from(takeover.as_secs()).unwrap_or(i64::MAX);
        let own = Own { name: MEMBER.of(name).into(), takeover };
        let records = records.keeping(self.options.history);
        let mut engine = Engine::new(records, self.options.settings()).acting_for(own);
        if !is_again {
            let started = SystemClock.millis().div_euclid(1_000);
            engine.start(NO_TIME, &self.options.noted(started)).await?;
        }
        let joined = engine.join(NO_TIME, process, is_again, &self.unheard).await?;
        self.unheard.clear();
        engine.follow_clock(NO_TIME, 0).await?;
        if went_back {
            warn!(
                "The queue went back to an older state than this daemon had written: what happened between is done again."
            );
            engine.note_went_back(NO_TIME).await?;
        }
        let engine::Joined { was_clean, input_directory } = joined;
        self.found = Found { was_clean, input_directory, is_paused: engine.is_paused() };
        self.membership.join(place);
        Ok(Asked::Had(Joined { engine, place }))
    }

    /// Joins if it has not, or was taken for dead since.
    async fn joined(&mut self) -> StoreResult<Joined> {
        if let Some(joined) = self.joined.take().filter(|_| !self.membership.is_lost()) {
            return Ok(joined);
        }
        self.reconnect.allowed()?;
        let joined = match self.ask_for_name(None).await {
            Ok(Asked::Had(joined)) => joined,
            Ok(Asked::Taken(holder, _)) => return Err(taken(&self.joining.name, &holder)),
            Err(error) => return Err(self.reconnect.failed(error)),
        };
        self.reconnect.succeeded();
        // Others may own by now what it had, and a batch whose answer was lost may have made work.
        self.membership.tell_change(Changed::Runs);
        self.membership.tell_work();
        let companion = || {
            let (server, membership) = (self.server.clone(), Arc::clone(&self.membership));
            tokio::spawn(accompany(server, membership))
        };
        self.companion.get_or_insert_with(companion);
        Ok(joined)
    }

    async fn call(&mut self, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let answered = self.try_call(batch).await;
        self.membership
            .note_away(matches!(answered, Err(StoreError::Busy(_) | StoreError::Denied(_))));
        answered
    }

    /// Carries a batch out. When it fails so that it may have been carried out all the same, what it handed out is
    /// undone with the next connection.
    async fn try_call(&mut self, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        self.membership.failure()?;
        let mut joined = self.joined().await?;
        let sent = boot_time();
        let answered = joined.carry_out(&self.membership, batch).await;
        self.ends.extend(joined.engine.take_ends());
        // It was frozen meanwhile: others may have taken it for dead, and handed out what it was answered.
        let is_late = boot_time().saturating_sub(sent) > CALL_MAX;
        match answered {
            Ok(outcomes) if is_late => {
                self.unheard.extend(handed_out(&outcomes));
                Err(unanswered())
            }
            Ok(outcomes) => {
                self.tell(&mut joined);
                self.joined = Some(joined);
                Ok(outcomes)
            }
            Err(error) if joined.engine.store().is_usable() => {
                let error = schema::looked_at(joined.engine.store().client(), error).await;
                self.joined = Some(joined);
                Err(error)
            }
            Err(error) => {
                self.unheard.extend(joined.engine.store().unheard());
                Err(error)
            }
        }
    }

    /// Reports a batch's effects besides its answers.
    fn tell(&self, joined: &mut Joined) {
        self.membership.note_pause(joined.engine.is_paused());
        let news = joined.engine.take_news();
        if news.has_work || news.has_stop {
            self.membership.tell_work();
        }
        if news.has_lease {
            // An attempt came from another daemon, and its lease is to run here.
            self.membership.tell_change(Changed::Leases);
        }
        for (fetcher, from) in news.taken {
            info!("This daemon takes over the fetcher {fetcher} of {from}.");
            self.membership.tell_change(Changed::Runs);
        }
    }

    fn stop_companion(&mut self) {
        if let Some(companion) = self.companion.take() {
            companion.abort();
        }
    }

    async fn leave(&mut self) -> StoreResult<()> {
        let joined = self.joined().await?;
        self.stop_companion();
        daemons::leave(joined.engine.store().client(), joined.place).await
    }
}

impl Joined {
    async fn carry_out(
        &mut self,
        membership: &Membership,
        batch: Vec<Operation>,
    ) -> StoreResult<Outcomes> {
        for dead in membership.take_dead() {
            self.adopt(membership, &dead).await?;
        }
        if membership.was_clock_set() {
            self.engine.follow_clock(NO_TIME, 0).await?;
        }
        let mut meetings = 0;
        loop {
            let answered = self.engine.apply(NO_TIME, batch.clone()).await;
            meetings += 1;
            let is_again = answered.is_err() && self.engine.store().met_another();
            if !is_again || meetings > MEETINGS_MAX {
                return answered;
            }
        }
    }

    /// Sees to what another daemon saw to that is gone, unless that one has come back, or others did so already.
    async fn adopt(&mut self, membership: &Membership, dead: &Peer) -> StoreResult<()> {
        let Peer { daemon, member, epoch, gone, seen, .. } = dead;
        self.engine.store_mut().require(Some((*daemon, *epoch)));
        let gone = gone.unwrap_or(Gone::Silent);
        let adopted = self.engine.adopt(NO_TIME, member, gone, *seen).await;
        self.engine.store_mut().require(None);
        let jobs = match adopted {
            // The next look finds it again, if it still must be adopted.
            Err(_) if self.engine.store().is_usable() => return Ok(()),
            adopted => adopted?,
        };
        daemons::note_adopted(self.engine.store().client(), dead).await?;
        if jobs > 0 {
            info!(
                daemon = MEMBER.whose(member),
                jobs, "Another daemon is dead or was stopped: its jobs are this one's."
            );
            membership.tell_change(Changed::Leases);
        }
        Ok(())
    }
}

fn taken(name: &str, holder: &str) -> StoreError {
    StoreError::Displaced(format!(
        "another daemon of this queue has the name {name} ({holder}): give this one another with --daemon-name"
    ))
}

fn handed_out(outcomes: &[Result<Outcome, Rejected>]) -> impl Iterator<Item = Attempt> {
    outcomes.iter().filter_map(|outcome| match outcome {
        Ok(Outcome::Dispatch(Dispatched::Job(attempt, _, _))) => Some(*attempt),
        _ => None,
    })
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.stop_companion();
    }
}

impl Store for PostgresStore {
    /// Time is the server's.
    fn apply(&mut self, _: Millis, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.call(batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.membership.poll_changed(task)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn look_every(&self) -> Duration {
        self.membership.look_every()
    }

    fn classic_lease(&self) -> Option<u32> {
        self.options.classic_lease()
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        // The server takes care of its files.
        Box::pin(ready(Ok(Checkpoint::Complete)))
    }

    fn take_ends(&mut self) -> Vec<JobEnd> {
        std::mem::take(&mut self.ends)
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.leave())
    }
}
