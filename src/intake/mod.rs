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

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, MailboxError};
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::live::SpoolLive;
use shiftboss_actors::service::{LookAtSpool, Service, ServiceLinks};
use shiftboss_actors::storage::StorageActor;
use shiftboss_actors::storage::messages::Perform;
use shiftboss_actors::store::{
    AcceptEntries, AcceptedEntries, Each, EntryId, ForgetAccepted, StoreError,
};
use shiftboss_protocol::backoff::Backoff;
use thiserror::Error;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use entries::{QUEUE, ROUND_MAX, TaskQueue};
use shiftboss_spool::{Spool, SpoolError, Stop};

/// How long storage may take for one request.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the next entry, between two looks whether it is over.
const ROUND: Duration = Duration::from_millis(500);
/// Shortest time between two rounds that are not full: what comes one by one is accepted together.
const GATHER: Duration = Duration::from_millis(25);
/// The first and the longest pause after a round that failed.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

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

impl Service for SpoolIntake {
    fn name(&self) -> &'static str {
        "the spool's intake"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier<String>) {
        info!(spool = %self.spool.path().display(), queue = QUEUE, "Taking tasks from a spool.");
        let reconciler = Reconciler::new(self.spool.clone(), self.stop.clone(), links.storage);
        self.rounds = Some(actix::spawn(async move {
            let _exit_notifier = exit_notifier;
            reconciler.run().await;
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

/// Why a round could not be finished. Nothing is lost: the next one begins anew.
#[derive(Debug, Error)]
enum IntakeError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are as many single tasks as may be.
    #[error(
        "as many single tasks are kept as may be (max_single_tasks); entries stay in the spool until some are done"
    )]
    Full,
    /// The spool is another one, or gone.
    #[error(
        "the spool {} is not at its path any more: it was removed, moved or replaced; put it back, or restart the daemon to use what is there now", .0.display()
    )]
    Lost(PathBuf),
    /// Storage did not answer in time, or is gone.
    #[error("storage gave no answer: {0}")]
    Mailbox(#[from] MailboxError),
}

/// What the rounds work with.
struct Reconciler {
    spool: Spool,
    stop: Stop,
    storage: Addr<StorageActor>,
    /// `None` while it could not be set up, and while a blocking call has it.
    queue: Option<TaskQueue>,
    /// What an earlier daemon left half-done is looked after.
    caught_up: bool,
    /// The last round failed.
    is_waiting: bool,
    backoff: Backoff,
}

impl Reconciler {
    /// Rounds that have not begun. Waits end with `stop`.
    fn new(spool: Spool, stop: Stop, storage: Addr<StorageActor>) -> Self {
        let backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        Self { spool, stop, storage, queue: None, caught_up: false, is_waiting: false, backoff }
    }

    /// Makes one round after the other until it is stopped.
    async fn run(mut self) {
        while !self.stop.is_set() {
            match self.round().await {
                Ok(accepted) => {
                    self.went_well(accepted);
                    if (1..ROUND_MAX).contains(&accepted) {
                        self.wait(GATHER).await;
                    }
                }
                Err(error) => self.rest(&error).await,
            }
        }
        let queue = self.queue.take();
        blocking(move || drop(queue)).await;
    }

    /// One round; how many entries were accepted.
    async fn round(&mut self) -> Result<usize, IntakeError> {
        let spool = self.spool.clone();
        if !blocking(move || spool.is_at_its_path()).await {
            return Err(IntakeError::Lost(self.spool.path().to_owned()));
        }
        self.catch_up().await?;
        self.on_queue(|queue| queue.fill(ROUND)).await?;
        let accepted = self.accept().await;
        let removed = self.on_queue(TaskQueue::remove).await?;
        self.forget(removed).await?;
        accepted
    }

    /// An earlier daemon may have died between any two steps of a round.
    async fn catch_up(&mut self) -> Result<(), IntakeError> {
        if self.caught_up {
            return Ok(());
        }
        self.on_queue(TaskQueue::inherit).await?;
        let known = self.storage.send(Perform(AcceptedEntries)).timeout(STORE_TIMEOUT).await??;
        let gone = self.on_queue(move |queue| Ok(queue.gone(known))).await?;
        self.forget(gone).await?;
        self.caught_up = true;
        Ok(())
    }

    async fn accept(&mut self) -> Result<usize, IntakeError> {
        let offers = self.queue.as_mut().map_or_else(Vec::new, TaskQueue::offers);
        if offers.is_empty() {
            return Ok(0);
        }
        // Without an answer they may be accepted yet: they stay checked out, and are offered again.
        let accept = Perform(AcceptEntries(offers));
        let accepted = self.storage.send(accept).timeout(STORE_TIMEOUT).await?;
        let (answers, error) = match accepted {
            Ok(answers) => (answers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        debug!(?answers, "Entries were offered.");
        let count = answers.len();
        let refused = self.on_queue(move |queue| queue.answered(&answers)).await?;
        match error {
            Some(error) => Err(error.into()),
            None if refused > 0 => Err(IntakeError::Full),
            None => Ok(count),
        }
    }

    async fn forget(&mut self, ids: Vec<EntryId>) -> Result<(), IntakeError> {
        if !ids.is_empty() {
            let forget = Perform(Each(ids.iter().cloned().map(ForgetAccepted).collect()));
            let forgotten = self.storage.send(forget).timeout(STORE_TIMEOUT).await??;
            forgotten.into_iter().collect::<Result<Vec<()>, _>>()?;
            self.queue.iter_mut().for_each(|queue| queue.forgotten(&ids));
        }
        Ok(())
    }

    /// Calls the queue on a thread for blocking work. It is opened first, if it is not.
    async fn on_queue<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut TaskQueue) -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let (queue, spool, stop) = (self.queue.take(), self.spool.clone(), self.stop.clone());
        let (queue, result) = blocking(move || {
            let mut queue = match queue.map_or_else(|| TaskQueue::open(spool, stop), Ok) {
                Ok(queue) => queue,
                Err(error) => return (None, Err(error)),
            };
            let result = call(&mut queue);
            (Some(queue), result)
        })
        .await;
        self.queue = queue;
        Ok(result?)
    }

    /// Lets time pass, unless it is stopped.
    async fn wait(&self, time: Duration) {
        let stop = self.stop.clone();
        blocking(move || {
            let _ = stop.wait(time);
        })
        .await;
    }

    /// Says once what is in the way. A full disk stays full for a while.
    async fn rest(&mut self, error: &IntakeError) {
        if std::mem::replace(&mut self.is_waiting, true) {
            debug!(%error, "Tasks of the spool must wait still.");
        } else {
            warn!(%error, "Tasks of the spool must wait; it is tried again until they are accepted.");
        }
        let delay = self.backoff.next_delay();
        self.wait(delay).await;
    }

    fn went_well(&mut self, accepted: usize) {
        if accepted > 0 && self.is_waiting {
            info!("Tasks of the spool are accepted again.");
        }
        self.is_waiting = false;
        self.backoff.reset();
    }
}

/// Runs `work` on a thread for blocking work. A panic there is one here.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is going: this task goes with it.
        Err(_) => std::future::pending().await,
    }
}
