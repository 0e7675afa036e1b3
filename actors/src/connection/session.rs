//! Answers lines of protocol 2 by asking storage, the watcher and the reader.
//!
//! Plain futures over [`Asker`], awaited by the [connection](super); they know no socket. Orders about one key are in [`on_keys`].

mod on_groups;
mod on_keys;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::prelude::*;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{REQUEST_TIMEOUT, STOPPING, answered, next_work};
use super::links::{Operators, SessionLinks, WorkLinks};
use super::reply::{Reply, json_line, together};
use super::workers::Seat;
use crate::clock::{Clock, SystemClock};
use crate::file_watcher::{AcceptInput, Accepted};
use crate::storage::StorageActor;
use crate::storage::messages::{self, HowAreYou, Pause, Perform, TakeJob, Work};
use shiftboss_protocol::answers::Turn;
use shiftboss_protocol::answers::live::{BrokerLive, Daemon, DaemonMetrics, Health, Live, Report};
use shiftboss_protocol::model::{Attempt, Idle, Key, LeaseHolder, UnixSeconds};
use shiftboss_protocol::verbs::{
    self, AcceptInputAnswer, AddAnswer, Asks, DrainAnswer, Fetchers, HealthAnswer, Name,
    PauseAnswer, Ready, Request, StatusAnswer, Verb, Who,
};
use shiftboss_protocol::wire::answers::Answer;
use shiftboss_protocol::wire::session::{Addition, ErrorCode, Refused, Step};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{
    Ack, AddTask, Added, AskFor, CompleteAttempt, Dispatch, Each, Heartbeat, Release, WhyIdle,
};
use shiftboss_queue::reader::{EndedAttempts, KEYS_BEFORE_MAX, Reader};

/// How long an operator's question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for the turns of tasks that were added; after that they are answered without their turns.
const TURNS_TIMEOUT: Duration = Duration::from_secs(2);

/// A relay's answer to questions about the queue.
const NO_QUEUE: &str = "a relay has no queue to look at: ask where the daemon runs that serves it";

/// The answer to a verb, or the error.
type Answered<V> = Result<<V as Verb>::Answer, Refused>;

/// A connection that has opted in, as far as its requests depend on it.
pub(super) struct Asker {
    pub(super) work: WorkLinks,
    pub(super) session: Rc<SessionLinks>,
    pub(super) holder: LeaseHolder,
    /// It is the daemon's own user, root, or a member of the operators' group.
    pub(super) is_operator: bool,
    /// Taken with the first request for work: an operator's connection does not count as a worker.
    pub(super) seat: Option<Seat>,
}

impl Asker {
    pub(super) async fn reply(&mut self, step: Step) -> Reply {
        match step.who() {
            Who::Operator if !self.is_operator => {
                let lines = if let Step::Adds(adds) = &step { adds.len() } else { 1 };
                return together((0..lines).map(|_| denied(self.session.operators.group)));
            }
            Who::Worker => {
                let Self { session, holder, seat, .. } = self;
                seat.get_or_insert_with(|| session.workers.seat(&holder.worker)).seen();
            }
            Who::Operator | Who::Anybody => {}
        }
        match step {
            Step::One(request) => self.request(request).await.unwrap_or_else(Reply::refused),
            Step::DoneReady(done, ready) => self.done(done, Some(ready)).await,
            Step::Adds(adds) => self.add(adds).await,
        }
    }

    async fn request(&self, request: Request) -> Result<Reply, Refused> {
        match request {
            Request::Ready(ready) => self.ready(ready).await,
            Request::Done(done) => Ok(self.done(done, None).await),
            Request::Beat(it) => self.beat(it.attempt, it.seconds.time()).await,
            Request::Release(it) => self.ask(Perform(Release(it.attempt))).await.map(Reply::ack),
            Request::Quit(_) => Ok(Reply::line(&Answer::Ok).and_close()),
            Request::Health(_) => self.health().await.and_then(Reply::object),
            Request::Metrics(_) => Reply::object(self.metrics()),
            Request::Status(_) => self.status().await,
            Request::Why(it) => self.why(it.key).await,
            Request::Queue(it) => self.queue(it.count.get()).await,
            Request::Log(it) => self.log(it.count.get()).await,
            Request::Retry(it) => self.retry(it.key, None).await.and_then(Reply::object),
            Request::RetryOf(it) => {
                self.retry(it.key, Some(it.fetcher.shared())).await.and_then(Reply::object)
            }
            Request::Requeue(it) => self.requeue(it.key).await.and_then(Reply::object),
            Request::Pause(_) => self.pause(true).await.and_then(Reply::object),
            Request::Resume(_) => self.pause(false).await.and_then(Reply::object),
            Request::Drain(_) => self.drain().await.and_then(Reply::object),
            Request::AcceptInput(_) => self.accept_input().await.and_then(Reply::object),
            Request::RunFetcher(it) => {
                self.run_fetcher(&it.fetcher.shared()).and_then(Reply::object)
            }
            // These come as a step of their own.
            it @ (Request::Add(_) | Request::AddOnce(_)) => {
                Ok(self.add(Addition::of(it).into_iter().collect()).await)
            }
            Request::Hold(it) => self.hold(it).await.and_then(Reply::object),
            Request::HoldAll(it) => self.hold_all(it).await.and_then(Reply::object),
            Request::HoldGroup(it) => self.hold_group(it).await.and_then(Reply::object),
            Request::UnholdGroup(it) => self.unhold_group(it.group).await.and_then(Reply::object),
            Request::HoldFetcher(it) => self.hold_fetcher(it).await.and_then(Reply::object),
            Request::Bump(it) => self.bump(it.key).await.and_then(Reply::object),
            Request::Forget(it) => self.forget(it.key).await.and_then(Reply::object),
            Request::Unhold(it) => self.unhold(it.key).await.and_then(Reply::object),
            Request::UnholdAll(it) => self.unhold_all(it.prefix).await.and_then(Reply::object),
            Request::UnholdFetcher(it) => {
                self.unhold_fetcher(it.fetcher).await.and_then(Reply::object)
            }
            Request::Cancel(it) => self.cancel(it.key).await.and_then(Reply::object),
            Request::CancelRunning(it) => self.cancel_running(it.key).await.and_then(Reply::object),
        }
    }

    /// Asks storage, within the time that a request may take.
    async fn ask<M, T: Send + 'static>(&self, message: M) -> Result<T, Refused>
    where
        M: Message<Result = StoreResult<T>> + Send + 'static,
        StorageActor: Handler<M>,
        Context<StorageActor>: ToEnvelope<StorageActor, M>,
    {
        in_time("storage", self.session.storage.send(message)).await?.map_err(undone)
    }

    async fn ready(&self, Ready { seconds, fetchers }: Ready) -> Result<Reply, Refused> {
        let wait = seconds.time();
        let until = Instant::now() + wait;
        let (next, is_told) = self.dispatch(fetchers);
        Ok(match next_work(None, next.clone(), &self.work).await? {
            Some(job) => Reply::leased(job, is_told),
            None if wait.is_zero() => no_jobs(&self.session.storage, next.fetchers).await,
            None => {
                let wait = wait_for_work(self.session.storage.clone(), next, is_told, until);
                Reply::waiting(wait, Answer::NoJobs(Idle::default()))
            }
        })
    }

    /// What it asks for, and whether its jobs name their fetchers.
    fn dispatch(&self, fetchers: Fetchers) -> (Dispatch, bool) {
        let is_told = fetchers != Fetchers::Unsaid;
        (Dispatch { holder: Some(self.holder.clone()), fetchers: fetchers.named() }, is_told)
    }

    async fn beat(&self, attempt: Attempt, wait: Duration) -> Result<Reply, Refused> {
        let until = Instant::now() + wait;
        let ack = self.ask(Perform(Heartbeat(attempt))).await?;
        if ack != Ack::Recorded || wait.is_zero() {
            return Ok(Reply::beat(ack));
        }
        let wait = wait_for_stop(self.session.storage.clone(), attempt, until);
        Ok(Reply::waiting(wait, Answer::Ok))
    }

    /// The end of a job; the next job, too, if that was asked for in one step: each line with its answer.
    async fn done(&self, done: verbs::Done, then: Option<verbs::Ready>) -> Reply {
        let (attempt, asks) = (done.attempt, done.asks);
        if asks != Asks::NOTHING
            && let Err(refused) = self.ask(Perform(AskFor { attempt, asks })).await
        {
            let refused = std::iter::repeat_n(refused, 1 + usize::from(then.is_some()));
            return together(refused.map(Reply::refused));
        }
        let ended = CompleteAttempt { attempt, exit_code: done.code };
        let Some(ready) = then else {
            let ack = self.ask(Perform(ended)).await;
            return ack.map_or_else(Reply::refused, Reply::ack);
        };
        let (next, is_told) = self.dispatch(ready.fetchers.clone());
        match self.ask(TakeJob { ended, next }).await {
            Ok((ack, Work::Job(job))) => Reply::leased(job, is_told).after(Reply::ack(ack)),
            Ok((ack, _)) => {
                let ready = self.ready(ready).await;
                ready.unwrap_or_else(Reply::refused).after(Reply::ack(ack))
            }
            Err(refused) => Reply::refused(refused.clone()).after(Reply::refused(refused)),
        }
    }

    async fn pause(&self, paused: bool) -> Answered<verbs::Pause> {
        self.ask(Pause { paused, drains: false }).await?;
        Ok(PauseAnswer { paused })
    }

    async fn drain(&self) -> Answered<verbs::Drain> {
        let in_flight = self.ask(Pause { paused: true, drains: true }).await?;
        Ok(DrainAnswer { paused: true, in_flight })
    }

    async fn accept_input(&self) -> Answered<verbs::AcceptInput> {
        let accepted = in_time("the watcher", self.session.accept_input.send(AcceptInput)).await?;
        let accepted = accepted.map_err(Refused::busy)? == Accepted::Taken;
        Ok(AcceptInputAnswer { accepted })
    }

    fn run_fetcher(&self, name: &str) -> Answered<verbs::RunFetcher> {
        let none = || Refused::unknown("this daemon runs no fetchers");
        self.session.run_fetcher.as_ref().ok_or_else(none)?(name)
    }

    /// While the database cannot be written, nothing can be handed out.
    async fn health(&self) -> Answered<verbs::Health> {
        let Health { in_flight, draining, outage } = self.ask(HowAreYou { lock: true }).await?;
        match outage {
            Some(outage) => Err(Refused::busy(outage.error)),
            None => Ok(HealthAnswer { in_flight, draining }),
        }
    }

    fn metrics(&self) -> DaemonMetrics {
        let Operators { daemon, usage, dropped_log_lines, .. } = &self.session.operators;
        DaemonMetrics {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: daemon.started,
            usage: usage(),
            dropped_log_lines: dropped_log_lines(),
            counted: self.work.metrics.counted(),
            broker: self.broker(),
        }
    }

    /// What is not in the database.
    async fn live(&self) -> Option<Live> {
        let health = self.ask(HowAreYou { lock: false }).await.ok()?;
        let workers = self.session.workers.connected();
        let broker = self.broker();
        let dropped_log_lines = (self.session.operators.dropped_log_lines)();
        let failing = self.work.metrics.failing(SystemClock.now());
        Some(Live { health, workers, broker, dropped_log_lines, failing })
    }

    fn broker(&self) -> Option<BrokerLive> {
        self.session.broker.as_ref().and_then(|look| look())
    }

    /// Tasks of several lines in one step, each with its answer.
    async fn add(&self, adds: Vec<Addition>) -> Reply {
        let keys: Vec<Key> = adds.iter().map(|it| it.task.key.clone()).collect();
        let task = |Addition { task, id }| AddTask { task, id: id.map(|id: Name| id.shared()) };
        let tasks = Each(adds.into_iter().map(task).collect());
        let added = match self.ask(Perform(tasks)).await {
            Ok(added) => added,
            Err(refused) => {
                return together(keys.iter().map(|_| Reply::refused(refused.clone())));
            }
        };
        let asked = keys.clone();
        let turns = self.read(TURNS_TIMEOUT, move |reader| {
            reader.turns(SystemClock.now(), &asked).map_err(Refused::busy)
        });
        let (turns, _) = turns.await.unwrap_or_default();
        let answers = keys.into_iter().zip(added).enumerate();
        together(answers.map(|(at, (key, added))| {
            let answer = added_task(key, added, turns.get(at));
            answer.and_then(Reply::object).unwrap_or_else(Reply::refused)
        }))
    }

    async fn status(&self) -> Result<Reply, Refused> {
        let live = self.live().await;
        let outage = live.clone().filter(|live| live.health.outage.is_some());
        let found = self.look::<verbs::Status>(move |reader, now, daemon| {
            let queue = reader.status(now).map_err(Refused::busy)?;
            Ok(StatusAnswer { queue: Some(Report::of(daemon, queue)), live })
        });
        match (found.await, outage) {
            // While the database server is away, nothing of the queue can be read.
            (Err(_), live @ Some(_)) => Reply::object(StatusAnswer { queue: None, live }),
            (found, _) => found,
        }
    }

    async fn why(&self, key: Key) -> Result<Reply, Refused> {
        self.look::<verbs::Why>(move |reader, now, daemon| {
            let found = reader.why(now, key.as_str(), KEYS_BEFORE_MAX).map_err(Refused::busy)?;
            let unknown = || {
                Refused::unknown(format!(
                    "the key {key} is unknown: no list has it, and it never ran"
                ))
            };
            found.map(|why| Report::of(daemon, why)).ok_or_else(unknown)
        })
        .await
    }

    async fn queue(&self, count: usize) -> Result<Reply, Refused> {
        self.look::<verbs::Queue>(move |reader, now, daemon| {
            let found = reader.next_jobs(now, count).map_err(Refused::busy);
            found.map(|queue| Report::of(daemon, queue))
        })
        .await
    }

    async fn log(&self, count: usize) -> Result<Reply, Refused> {
        let asked = EndedAttempts { count, ..EndedAttempts::default() };
        self.look::<verbs::Log>(move |reader, _, daemon| {
            let found = reader.ended_attempts(&asked).map_err(Refused::busy);
            found.map(|log| Report::of(daemon, log))
        })
        .await
    }

    /// Asks the reader, and makes a line of its answer on the same thread, because it may be long.
    async fn look<V: Verb<Answer: Serialize>>(
        &self,
        question: impl FnOnce(&dyn Reader, UnixSeconds, &Daemon) -> Answered<V> + Send + 'static,
    ) -> Result<Reply, Refused> {
        let daemon = Arc::clone(&self.session.operators.daemon);
        let line = self.read(ANSWER_TIMEOUT, move |reader| {
            question(reader, SystemClock.now(), &daemon).and_then(json_line)
        });
        let (line, place) = line.await?;
        Ok(Reply { bytes: line, _place: place, ..Reply::default() })
    }

    async fn read<T: Send + 'static>(
        &self,
        most: Duration,
        question: impl FnOnce(&dyn Reader) -> Result<T, Refused> + Send + 'static,
    ) -> Result<(T, Option<OwnedSemaphorePermit>), Refused> {
        let Some(reader) = self.session.operators.reader.clone() else {
            return Err(Refused::busy(NO_QUEUE));
        };
        let (found, place) = self.on_a_thread(most, move || question(&*reader)).await?;
        Ok((found?, place))
    }

    /// Does `work`, which may take long, on a thread of its own. There are few places for such threads, so a disk that
    /// hangs holds no more than that many. The place is freed once the result is dropped.
    async fn on_a_thread<T: Send + 'static>(
        &self,
        most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Option<OwnedSemaphorePermit>), Refused> {
        let room = Arc::clone(&self.session.room);
        let worked = async move {
            // The semaphore is never closed.
            let place = room.acquire_owned().await.ok();
            // The work goes on after the timeout, and keeps its place until it ends.
            spawn_blocking(move || (work(), place)).await
        };
        match timeout(most, worked).await {
            Ok(worked) => worked.map_err(Refused::busy),
            Err(_) => Err(Refused::busy("it took too long")),
        }
    }
}

/// Why storage did not do it. A rejected order stays rejected: the daemon does not allow its relay that order.
fn undone(error: StoreError) -> Refused {
    match error {
        StoreError::Rejected(text) => Refused { code: ErrorCode::Denied, text: text.into() },
        error => Refused::busy(error),
    }
}

/// Says which option of the running daemon decides.
fn denied(group: Option<u32>) -> Reply {
    let whose = "that is for its own user and root";
    let text = match group {
        Some(group) => {
            format!("{whose}, and for members of group {group}, which its --operator-group names")
        }
        None => format!("{whose} alone, as long as it runs without --operator-group"),
    };
    Reply::refused(Refused { code: ErrorCode::Denied, text: text.into() })
}

fn added_task(key: Key, added: StoreResult<Added>, turn: Option<&Turn>) -> Answered<verbs::Add> {
    let added = added.map_err(undone)?;
    if added == Added::Full {
        let text = "there are as many single tasks as may be (max_single_tasks); add it later";
        return Err(Refused::new(ErrorCode::Full, text));
    }
    Ok(AddAnswer {
        key,
        added: matches!(added, Added::Added(_)),
        keys_before: turn.and_then(|turn| turn.keys_before),
        exact: turn.is_some_and(|turn| turn.exact),
        tasks_before: turn.map(|turn| turn.tasks_before),
    })
}

async fn wait_for_work(
    storage: Addr<StorageActor>,
    next: Dispatch,
    is_told: bool,
    until: Instant,
) -> Reply {
    let of = next.fetchers.clone();
    match timeout_at(until, storage.send(messages::Wait(next))).await {
        Err(_) => no_jobs(&storage, of).await,
        Ok(Ok(Ok(Work::Job(job)))) => Reply::leased(job, is_told),
        Ok(Ok(Ok(Work::Nothing | Work::Later))) => Reply::line(&Answer::NoJobs(Idle::default())),
        Ok(Ok(Err(error))) => Reply::refused(Refused::busy(error)),
        Ok(Err(_)) => Reply::refused(Refused::busy(STOPPING)),
    }
}

async fn wait_for_stop(storage: Addr<StorageActor>, attempt: Attempt, until: Instant) -> Reply {
    match timeout_at(until, storage.send(messages::WaitForStop(attempt))).await {
        Err(_) => Reply::beat(Ack::Recorded),
        Ok(Ok(ack)) => Reply::beat(ack),
        Ok(Err(_)) => Reply::refused(Refused::busy(STOPPING)),
    }
}

/// Says that there is no job, and why; only the former if storage does not answer.
async fn no_jobs(storage: &Addr<StorageActor>, of: Option<Vec<Arc<str>>>) -> Reply {
    let why = in_time("storage", storage.send(Perform(WhyIdle(of)))).await;
    let idle = why.map(Result::unwrap_or_default).unwrap_or_default();
    Reply::line(&Answer::NoJobs(idle))
}

/// Awaits an actor's answer, within the time that a request may take.
async fn in_time<T>(
    who: &str,
    sent: impl Future<Output = Result<T, MailboxError>>,
) -> Result<T, Refused> {
    answered(who, sent, Instant::now() + REQUEST_TIMEOUT).await
}
