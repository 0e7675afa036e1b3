//! A relay's membership in its installation: its connection, and the epoch under which it acts.
//!
//! The relay's two stores share it. Whichever is called first after a failure joins anew, and both learn of it. It
//! sends the beats; all other requests are the stores' own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shiftboss_actors::reconnect::Reconnect;
use shiftboss_actors::store::Changed;
use shiftboss_actors::throttle::Throttle;
use shiftboss_protocol::backoff::{Backoff, random, shortened};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{JoinedRelay, Lane, RelayAnswer};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::Settings;
use super::change_signal::ChangeSignal;
use super::rpc_client::RpcClient;
use crate::host_name;
use crate::link::{CALL_MAX, RECONNECT};
use crate::message::{Reply, Request};

const BEAT: Duration = Duration::from_secs(1);
/// Seconds between two reports that no daemon has answered yet.
const WAIT_SAID_SECONDS: u32 = 60;
const WAITING: &str = "Waiting for a daemon: workers can connect once one has answered.";
/// Delays before daemons that did not answer are asked again: they have delays of their own before they are back.
const REJOIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

pub(super) struct Membership {
    settings: Settings,
    process: Arc<str>,
    installation: Arc<str>,
    state: Mutex<State>,
    /// Of the store for jobs, and of that for lists.
    pub(super) signals: Signals,
}

pub(super) struct Signals {
    pub(super) jobs: Arc<ChangeSignal>,
    pub(super) lists: Arc<ChangeSignal>,
}

struct State {
    joined: Option<Joined>,
    ended: Option<StoreError>,
    reconnect: Reconnect,
    rejoin: Reconnect,
}

struct Joined {
    client: Arc<RpcClient>,
    epoch: i64,
    _beats: AbortOnDropHandle<()>,
}

impl State {
    fn end(&mut self, error: StoreError) -> StoreError {
        self.ended.insert(error).clone()
    }
}

impl Signals {
    fn raise(&self, changed: Changed) {
        self.jobs.raise(changed);
        self.lists.raise(changed);
    }
}

impl Membership {
    /// Joins the installation as soon as a daemon answers; `waits` is called each time that a message in the log says
    /// that none has. The connection is not kept: the first request makes the next one, on its own runtime.
    pub(super) async fn join(
        settings: Settings,
        waits: impl Fn(),
    ) -> StoreResult<(Self, JoinedRelay)> {
        let process = this_process().into();
        // The broker's address may be wrong; only once it has answered, we wait for it, too.
        let link = settings.broker.connect("shiftboss relay").await?;
        link.close().await;
        let mut said = Throttle::new(1, WAIT_SAID_SECONDS);
        let mut backoff = Backoff::new(REJOIN.0, REJOIN.1);
        let found = loop {
            match first_join(&settings, &process).await {
                Err(error @ (StoreError::Busy(_) | StoreError::Full(_))) => {
                    if said.admit(Instant::now().into_std()).is_some() {
                        warn!(%error, "{WAITING}");
                        waits();
                    }
                    sleep(shortened(backoff.next_delay())).await;
                }
                joined => break joined?,
            }
        };
        let installation = Arc::clone(&found.installation);
        let state = State {
            joined: None,
            ended: None,
            reconnect: Reconnect::new(RECONNECT),
            rejoin: Reconnect::new(REJOIN),
        };
        let jobs = Arc::new(ChangeSignal::new(settings.polls));
        let signals = Signals { jobs, lists: Arc::default() };
        let state = Mutex::new(state);
        Ok((Self { settings, process, installation, state, signals }, found))
    }

    /// The connection and the epoch; joins if it has not, or was taken for dead since.
    ///
    /// # Errors
    /// `Busy` while that fails, `Fatal` if the queue is another one, `Displaced` if another process has the name.
    pub(super) async fn joined(&self) -> StoreResult<(Arc<RpcClient>, i64)> {
        let mut state = self.state.lock().await;
        let is_good = |joined: &&Joined| {
            !joined.client.is_broken() && !self.signals.jobs.is_lost(joined.epoch)
        };
        if let Some(joined) = state.joined.as_ref().filter(is_good) {
            return Ok((Arc::clone(&joined.client), joined.epoch));
        }
        state.joined = None;
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        state.reconnect.allowed()?;
        state.rejoin.allowed()?;
        let client = match self.connect().await {
            Ok(client) => client,
            Err(error) => return Err(state.reconnect.failed(later(error))),
        };
        let joined = match self.join_over(client).await {
            Ok(joined) => joined,
            Err(StoreError::Rejected(text)) => return Err(state.end(StoreError::Fatal(text))),
            Err(error @ StoreError::Displaced(_)) => return Err(state.end(error)),
            Err(error) => return Err(state.rejoin.failed(later(error))),
        };
        state.reconnect.succeeded();
        state.rejoin.succeeded();
        let asked = (Arc::clone(&joined.client), joined.epoch);
        // Others may own by now what it had, and hints were missed.
        self.signals.raise(Changed::Runs);
        state.joined = Some(joined);
        Ok(asked)
    }

    async fn connect(&self) -> StoreResult<Arc<RpcClient>> {
        let Settings { broker, name, .. } = &self.settings;
        let signal = Arc::clone(&self.signals.jobs);
        RpcClient::open(broker, name, move || signal.note_hint()).await.map(Arc::new)
    }

    async fn join_over(&self, client: Arc<RpcClient>) -> StoreResult<Joined> {
        let (name, installation) = (&self.settings.name, Some(&self.installation));
        let epoch = join(&client, name, &self.process, installation).await?.epoch;
        let signal = Arc::clone(&self.signals.jobs);
        let beats = AbortOnDropHandle::new(tokio::spawn(beat(Arc::clone(&client), epoch, signal)));
        Ok(Joined { client, epoch, _beats: beats })
    }

    /// It was taken for dead under this epoch, or is ahead of the queue: the error says to repeat the request once it
    /// has joined anew.
    pub(super) fn lost(&self, epoch: i64) -> StoreError {
        self.signals.jobs.lose(epoch);
        StoreError::Busy(
            "this relay was taken for dead, or the queue went back: it joins anew".to_owned(),
        )
    }

    /// Leaves its leases to others. If the message is lost, they find out by themselves.
    pub(super) async fn leave(&self) {
        if let Some(joined) = self.state.lock().await.joined.take() {
            let leave = Request::Leave { epoch: joined.epoch };
            let _ = timeout(CALL_MAX, joined.client.ask(&leave)).await;
            joined.client.close().await;
        }
    }
}

/// Over a connection of its own.
async fn first_join(settings: &Settings, process: &Arc<str>) -> StoreResult<JoinedRelay> {
    let client = RpcClient::open(&settings.broker, &settings.name, || {}).await?;
    let joined = join(&client, &settings.name, process, None).await;
    client.close().await;
    joined
}

/// A unique name for this process, by which people can find it.
fn this_process() -> String {
    format!("{} pid {} {:016x}", host_name(), std::process::id(), random())
}

async fn join(
    client: &RpcClient,
    name: &str,
    process: &Arc<str>,
    installation: Option<&Arc<str>>,
) -> StoreResult<JoinedRelay> {
    let (process, installation) = (Arc::clone(process), installation.cloned());
    let request = Request::Join { name: name.into(), process, installation };
    match client.ask(&request).await? {
        Reply::Joined(joined) => Ok(joined),
        other => Err(failure(other)),
    }
}

/// The error for a reply that is not the expected answer.
pub(super) fn failure(reply: Reply) -> StoreError {
    match reply {
        Reply::Busy(why) => {
            StoreError::Busy(format!("a daemon answers, and cannot do it now: {why}"))
        }
        Reply::Full(text) => StoreError::Full(text),
        Reply::Refused(text) => StoreError::Rejected(text),
        Reply::Taken(text) => StoreError::Displaced(text),
        Reply::Joined(_) | Reply::Batch(_) | Reply::Rows(_) | Reply::Left => misunderstood(),
    }
}

/// A relay that has once joined keeps trying, whatever the broker refuses.
fn later(error: StoreError) -> StoreError {
    match error {
        StoreError::Fatal(text) => StoreError::Busy(text),
        error => error,
    }
}

pub(super) fn misunderstood() -> StoreError {
    StoreError::Fatal(
        "a daemon answered what was not asked: its version may be another one".to_owned(),
    )
}

/// Sends signs of life until the relay is taken for dead, or the queue was restored to a state before its last answers.
async fn beat(client: Arc<RpcClient>, epoch: i64, signal: Arc<ChangeSignal>) {
    loop {
        sleep(BEAT).await;
        let number = client.lists_kept.load(Ordering::Relaxed);
        let alive = Request::Batch { epoch, lane: Lane::Lists, number, operations: Vec::new() };
        match client.ask(&alive).await {
            Ok(Reply::Batch(RelayAnswer::Lost)) => {
                info!(
                    "This relay was taken for dead, or the queue is a restored backup: it joins anew."
                );
                return signal.lose(epoch);
            }
            // The StorageActor then asks for its leases, and so makes the store connect anew.
            _ if client.is_broken() => return signal.raise(Changed::Leases),
            _ => {}
        }
    }
}
