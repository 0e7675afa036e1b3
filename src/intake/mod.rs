//! The spool's intake: entries of the spool's queue `tasks` are accepted as single tasks, each once, and
//! removed from the spool.
//!
//! [`SpoolIntake`] is a service of the supervision tree, started by `serve`. Its [`Reconciler`] knows the spool
//! (through [`entries`]) and the messages of storage; no SQL, no socket.
//!
//! It makes one round after the other. A round takes entries, which are then checked out and so nobody
//! else's; has storage accept them, in one transaction that is on disk when it answers; removes them from the
//! spool, durably; and has storage forget them. Storage knows an entry by spool, name, inode, birth time and
//! checksum from the acceptance until then. So a daemon may die between any two steps: what it had checked out is left
//! to the next one, which offers it again, and has it known if it was accepted.

mod entries;

use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Handler, Message};
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::live::SpoolLive;
use shiftboss_actors::service::{LookAtSpool, Service, ServiceLinks};
use shiftboss_actors::storage::StorageActor;
use shiftboss_actors::storage::messages::Perform;
use shiftboss_protocol::backoff::Backoff;
use shiftboss_queue::operation::{AcceptEntries, AcceptedEntries, Each, ForgetAccepted};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{debug, info, warn};

use entries::{QUEUE, ROUND_MAX, TaskQueue};
use shiftspool::{Spool, Stop};

/// How long storage may take for one request.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the next entry, between two looks whether it is over.
const ROUND: Duration = Duration::from_millis(500);
/// Shortest time between two rounds that are not full: what comes one by one is accepted together.
const GATHER: Duration = Duration::from_millis(25);
/// The first and the longest pause after a round that failed.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// There are as many single tasks as may be.
const FULL: &str = "as many single tasks are kept as may be (max_single_tasks); entries stay in the spool until some are done";

/// The service that brings a spool's tasks into the queue.
pub struct SpoolIntake {
    spool: Spool,
    stop: Stop,
    rounds: Option<JoinHandle<()>>,
    /// This daemon accepts the entries, and no other one.
    _lock: File,
}

impl SpoolIntake {
    /// An intake of the tasks of `spool`, whose lock for accepting it holds.
    pub fn new(spool: Spool, lock: File) -> std::io::Result<Self> {
        Ok(Self { spool, stop: Stop::new()?, rounds: None, _lock: lock })
    }
}

impl Drop for SpoolIntake {
    /// The runtime waits for its threads.
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Service for SpoolIntake {
    fn name(&self) -> &'static str {
        "the spool's intake"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier) {
        info!(spool = %self.spool.path().display(), queue = QUEUE, "Taking tasks from a spool.");
        let reconciler = Reconciler::new(self.spool.clone(), self.stop.clone(), links.storage);
        self.rounds = Some(spawn_blocking(move || {
            let _exit_notifier = exit_notifier;
            reconciler.run();
        }));
    }

    fn spool(&self) -> Option<LookAtSpool> {
        let spool = self.spool.clone();
        Some(Arc::new(move || {
            // One that cannot be listed is the log's to tell.
            let dead = spool.list(&spool.options().dead_letter);
            SpoolLive {
                path: spool.path().to_string_lossy().into_owned(),
                lost: !spool.is_at_its_path(),
                dead_letters: dead.map_or(0, |entries| entries.len()),
            }
        }))
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        self.stop.stop();
        let rounds = self.rounds.take();
        Box::pin(async move {
            if let Some(rounds) = rounds {
                // The panic hook has reported a panic there.
                let _ = rounds.await;
            }
        })
    }
}

/// Of a round. If it could not be finished nothing is lost: the next one begins anew.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the rounds work with.
struct Reconciler {
    spool: Spool,
    stop: Stop,
    storage: Addr<StorageActor>,
    /// Where storage's answers arrive.
    runtime: Handle,
    /// The last round failed.
    is_waiting: bool,
    backoff: Backoff,
}

impl Reconciler {
    /// Rounds that have not begun. Waits end with `stop`.
    fn new(spool: Spool, stop: Stop, storage: Addr<StorageActor>) -> Self {
        let (runtime, backoff) = (Handle::current(), Backoff::new(PAUSE_MIN, PAUSE_MAX));
        Self { spool, stop, storage, runtime, is_waiting: false, backoff }
    }

    /// Makes one round after the other until it is stopped.
    fn run(mut self) {
        let mut queue = None;
        while !self.stop.is_set() {
            let pause = match self.round(&mut queue) {
                Ok(accepted) => {
                    self.went_well(accepted);
                    if (1..ROUND_MAX).contains(&accepted) { GATHER } else { Duration::ZERO }
                }
                Err(error) => self.went_wrong(&*error),
            };
            let _ = self.stop.wait(pause);
        }
    }

    /// One round; how many entries were accepted. The queue is opened first, if it is not.
    fn round(&mut self, queue: &mut Option<TaskQueue>) -> Result<usize> {
        if !self.spool.is_at_its_path() {
            let path = self.spool.path().display();
            return Err(format!("the spool {path} is not at its path any more: it was removed, moved or replaced; put it back, or restart the daemon to use what is there now").into());
        }
        let queue = match queue {
            Some(queue) => queue,
            None => queue.insert(self.open()?),
        };
        // One entry asks whether there is room again.
        queue.fill(if self.is_waiting { 1 } else { ROUND_MAX }, ROUND)?;
        let accepted = self.accept(queue);
        self.remove(queue)?;
        accepted
    }

    /// Opens the queue, with what an earlier daemon left that died between any two steps of a round.
    fn open(&self) -> Result<TaskQueue> {
        let known = self.ask(Perform(AcceptedEntries))??;
        let mut queue = TaskQueue::open(self.spool.clone(), self.stop.clone())?;
        queue.inherit(known)?;
        Ok(queue)
    }

    fn accept(&self, queue: &mut TaskQueue) -> Result<usize> {
        let offers = queue.offers();
        if offers.is_empty() {
            return Ok(0);
        }
        // Without an answer they may be accepted yet: they stay checked out, and are offered again.
        let (answers, error) = match self.ask(Perform(AcceptEntries(offers)))? {
            Ok(answers) => (answers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        debug!(?answers, "Entries were offered.");
        let refused = queue.answered(&answers)?;
        match error {
            Some(error) => Err(error.into()),
            None if refused > 0 => Err(FULL.into()),
            None => Ok(answers.len()),
        }
    }

    /// Removes what was accepted, and has storage forget it.
    fn remove(&self, queue: &mut TaskQueue) -> Result<()> {
        let removed = queue.remove()?;
        if !removed.is_empty() {
            let forget = Perform(Each(removed.iter().cloned().map(ForgetAccepted).collect()));
            let forgotten = self.ask(forget)??;
            forgotten.into_iter().collect::<std::result::Result<Vec<()>, _>>()?;
            queue.forgotten();
        }
        Ok(())
    }

    /// What storage answers.
    fn ask<M>(&self, message: M) -> Result<M::Result>
    where
        StorageActor: Handler<M>,
        M: Message<Result: Send> + Send + 'static,
    {
        let storage = self.storage.clone();
        let asked = async move { storage.send(message).timeout(STORE_TIMEOUT).await };
        // On the runtime's thread: if that goes first, there is no answer.
        let answer = self.runtime.block_on(self.runtime.spawn(asked));
        let answer = answer.map_err(|gone| gone.to_string())?;
        answer.map_err(|error| format!("storage gave no answer: {error}").into())
    }

    /// Says once what is in the way. A full disk stays full for a while: how long to wait.
    fn went_wrong(&mut self, error: &dyn Error) -> Duration {
        if std::mem::replace(&mut self.is_waiting, true) {
            debug!(%error, "Tasks of the spool must wait still.");
        } else {
            warn!(%error, "Tasks of the spool must wait; it is tried again until they are accepted.");
        }
        self.backoff.next_delay()
    }

    fn went_well(&mut self, accepted: usize) {
        if accepted > 0 && self.is_waiting {
            info!("Tasks of the spool are accepted again.");
        }
        self.is_waiting = false;
        self.backoff.reset();
    }
}
