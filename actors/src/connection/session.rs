//! What a line of protocol 2 is answered: asking storage, the watcher and the reader.
//!
//! Plain futures over [`Asker`], awaited by the [connection](super); they know no socket. Orders about one key are in [`on_keys`].

mod on_keys;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::prelude::*;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{REQUEST_TIMEOUT, STOPPING, answered, next_work};
use super::links::{Operators, SessionLinks, WorkLinks};
use super::reply::{Reply, together};
use super::workers::Seat;
use crate::clock::{Clock, SystemClock};
use crate::file_watcher::{AcceptInput, Accepted};
use crate::live::{BrokerLive, DaemonMetrics, Health, Live, LiveStatus, Report};
use crate::storage::StorageActor;
use crate::storage::messages::{self, HowAreYou, Pause, Perform, TakeJob, Work};
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_protocol::model::{Attempt, Idle, Key, UnixSeconds};
use shiftboss_protocol::wire::answers::Answer;
use shiftboss_protocol::wire::session::{Addition, ErrorCode, Refused, SessionRequest};
use shiftboss_queue::answers::Turn;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{
    Ack, AddTask, Added, CompleteAttempt, Each, Heartbeat, Release, WhyIdle,
};
use shiftboss_queue::reader::{EndedAttempts, KEYS_BEFORE_MAX, Reader};

/// How long an operator's question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same of the turns of tasks that were added: they are answered without them otherwise.
const TURNS_TIMEOUT: Duration = Duration::from_secs(2);

/// What a relay says of the queue.
const NO_QUEUE: &str = "a relay has no queue to look at: ask where the daemon runs that serves it";

/// A reply, or the error that it is.
type Answered = Result<Reply, Refused>;

/// A connection that has opted in, as far as its requests depend on it.
pub(super) struct Asker {
    pub(super) work: WorkLinks,
    pub(super) session: Rc<SessionLinks>,
    pub(super) holder: LeaseHolder,
    /// It is the daemon's own user, root, or a member of the operators' group.
    pub(super) is_operator: bool,
    /// Taken with the first request for work: an operator's connection is no worker's.
    pub(super) seat: Option<Seat>,
}

impl Asker {
    /// One flat match over all requests.
    pub(super) async fn reply(&mut self, request: SessionRequest) -> Reply {
        if request.is_of_an_operator() && !self.is_operator {
            let lines = if let SessionRequest::Add(tasks) = &request { tasks.len() } else { 1 };
            let group = self.session.operators.group;
            return together((0..lines).map(|_| denied(group)));
        }
        if request.is_of_a_worker() {
            let Self { session, holder, seat, .. } = self;
            seat.get_or_insert_with(|| session.workers.seat(&holder.worker)).seen();
        }
        let answered = match request {
            SessionRequest::Ready { wait } => self.ready(wait).await,
            SessionRequest::Done { attempt, exit_code, then } => {
                return self.done(CompleteAttempt { attempt, exit_code }, then).await;
            }
            SessionRequest::Beat(attempt) => self.beat(attempt).await,
            SessionRequest::Release(attempt) => {
                self.ask(Perform(Release(attempt))).await.map(Reply::ack)
            }
            SessionRequest::Quit => Ok(Reply::line(&Answer::Ok).and_close()),
            SessionRequest::Health => self.health().await,
            SessionRequest::Metrics => self.metrics(),
            SessionRequest::Add(tasks) => return self.add(tasks).await,
            SessionRequest::Status => self.status().await,
            SessionRequest::Why(key) => self.why(key).await,
            SessionRequest::Queue(count) => {
                self.look(move |reader, now| reader.next_jobs(now, count).map_err(Refused::busy))
                    .await
            }
            SessionRequest::Log(count) => {
                let asked = EndedAttempts { count, ..EndedAttempts::default() };
                self.look(move |reader, _| reader.ended_attempts(&asked).map_err(Refused::busy))
                    .await
            }
            SessionRequest::Retry(key, fetcher) => self.retry(key, fetcher).await,
            SessionRequest::Requeue(key) => self.requeue(key).await,
            SessionRequest::Hold(key, seconds, reason) => self.hold(key, seconds, reason).await,
            SessionRequest::HoldAll(prefix, seconds, reason) => {
                self.hold_all(prefix, seconds, reason).await
            }
            SessionRequest::Bump(key) => self.bump(key).await,
            SessionRequest::Unhold(key) => self.unhold(key).await,
            SessionRequest::UnholdAll(prefix) => self.unhold_all(prefix).await,
            SessionRequest::Forget(key) => self.forget(key).await,
            SessionRequest::Cancel(key) => self.cancel(key).await,
            SessionRequest::Pause { paused, drains } => self.pause(paused, drains).await,
            SessionRequest::AcceptInput => self.accept_input().await,
            SessionRequest::RunFetcher(name) => self.run_fetcher(&name),
        };
        answered.unwrap_or_else(Reply::refused)
    }

    /// Asks storage, as long as a request may take.
    async fn ask<M, T: Send + 'static>(&self, message: M) -> Result<T, Refused>
    where
        M: Message<Result = StoreResult<T>> + Send + 'static,
        StorageActor: Handler<M>,
        Context<StorageActor>: ToEnvelope<StorageActor, M>,
    {
        in_time("storage", self.session.storage.send(message)).await?.map_err(undone)
    }

    async fn ready(&self, wait: Duration) -> Answered {
        let until = Instant::now() + wait;
        Ok(match next_work(None, Some(self.holder.clone()), &self.work).await? {
            Some(job) => Reply::leased(job),
            None if wait.is_zero() => no_jobs(&self.session.storage).await,
            None => {
                let wait = wait_for_work(self.session.storage.clone(), self.holder.clone(), until);
                Reply { wait: Some(Box::pin(wait)), ..Reply::default() }
            }
        })
    }

    async fn beat(&self, attempt: Attempt) -> Answered {
        let ack = self.ask(Perform(Heartbeat(attempt))).await?;
        Ok(Reply::line(if ack == Ack::Recorded { &Answer::Ok } else { &Answer::Lost }))
    }

    /// The end of a job; the next job, too, if that was asked for in one step: each line with its answer.
    async fn done(&self, ended: CompleteAttempt, then: Option<Duration>) -> Reply {
        let Some(wait) = then else {
            let ack = self.ask(Perform(ended)).await;
            return ack.map_or_else(Reply::refused, Reply::ack);
        };
        match self.ask(TakeJob { ended, holder: Some(self.holder.clone()) }).await {
            Ok((ack, Work::Job(job))) => Reply::leased(job).after(Reply::ack(ack)),
            Ok((ack, _)) => {
                let ready = self.ready(wait).await;
                ready.unwrap_or_else(Reply::refused).after(Reply::ack(ack))
            }
            Err(refused) => Reply::refused(refused.clone()).after(Reply::refused(refused)),
        }
    }

    async fn pause(&self, paused: bool, drains: bool) -> Answered {
        let in_flight = self.ask(Pause { paused, drains }).await?;
        let object = match drains {
            true => json!({"paused": true, "in_flight": in_flight}),
            false => json!({"paused": paused}),
        };
        Ok(Reply::json(object))
    }

    async fn accept_input(&self) -> Answered {
        let accepted = in_time("the watcher", self.session.accept_input.send(AcceptInput)).await?;
        let is_taken = accepted.map_err(Refused::busy)? == Accepted::Taken;
        Ok(Reply::json(json!({"accepted": is_taken})))
    }

    fn run_fetcher(&self, name: &str) -> Answered {
        let none = || Refused::unknown("this daemon runs no fetchers");
        let run = self.session.run_fetcher.as_ref().ok_or_else(none)?;
        Ok(Reply::json(run(name)?))
    }

    /// What cannot be written cannot be handed out.
    async fn health(&self) -> Answered {
        let health = self.ask(HowAreYou { lock: true }).await?;
        let Health { in_flight, draining, outage } = health;
        match outage {
            Some(outage) => Err(Refused::busy(outage.error)),
            None => Ok(Reply::json(json!({"in_flight": in_flight, "draining": draining}))),
        }
    }

    fn metrics(&self) -> Answered {
        let Operators { daemon, usage, dropped_log_lines, .. } = &self.session.operators;
        let line = serde_json::to_string(&DaemonMetrics {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: daemon.started,
            usage: usage(),
            dropped_log_lines: dropped_log_lines(),
            counted: self.work.metrics.counted(),
            broker: self.broker(),
        });
        Ok(Reply::json(line.map_err(Refused::busy)?))
    }

    /// What the database does not know.
    async fn live(&self) -> Option<Live> {
        let health = self.ask(HowAreYou { lock: false }).await.ok()?;
        let workers = self.session.workers.connected();
        let broker = self.broker();
        let dropped_log_lines = (self.session.operators.dropped_log_lines)();
        Some(Live { health, workers, broker, dropped_log_lines })
    }

    fn broker(&self) -> Option<BrokerLive> {
        self.session.broker.as_ref().and_then(|look| look())
    }

    /// Tasks of several lines in one step, each with its answer.
    async fn add(&self, tasks: Vec<Addition>) -> Reply {
        let keys: Vec<Key> = tasks.iter().map(|it| it.task.key.clone()).collect();
        let tasks = tasks.into_iter().map(|Addition { task, id }| AddTask { task, id });
        let tasks = Each(tasks.collect());
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
        let answers = keys.iter().zip(added).enumerate();
        together(answers.map(|(at, (key, added))| added_line(key, added, turns.get(at))))
    }

    async fn status(&self) -> Answered {
        let live = self.live().await;
        let known = live.clone().filter(|live| live.health.outage.is_some());
        let found = self.look(|reader, now| {
            let queue = reader.status(now).map_err(Refused::busy)?;
            Ok(LiveStatus { queue, live })
        });
        match (found.await, known) {
            // A server that is away tells nothing of the queue.
            (Err(_), Some(live)) => Ok(Reply::json(json!({"live": live}))),
            (found, _) => found,
        }
    }

    async fn why(&self, key: Key) -> Answered {
        self.look(move |reader, now| {
            let unknown = || Refused::unknown(format!("nobody ever heard of {key}"));
            reader
                .why(now, key.as_str(), KEYS_BEFORE_MAX)
                .map_err(Refused::busy)?
                .ok_or_else(unknown)
        })
        .await
    }

    /// What the reader finds, as one line of JSON.
    async fn look<T: Serialize>(
        &self,
        question: impl FnOnce(&dyn Reader, UnixSeconds) -> Result<T, Refused> + Send + 'static,
    ) -> Answered {
        let daemon = Arc::clone(&self.session.operators.daemon);
        let line = self.read(ANSWER_TIMEOUT, move |reader| {
            let found = &question(reader, SystemClock.now())?;
            let (database, daemon) = (daemon.database.as_path(), Some(&*daemon));
            let report = Report { database, daemon, daemon_unknown: None, found };
            serde_json::to_string(&report).map_err(Refused::busy)
        });
        let (line, place) = line.await?;
        Ok(Reply { _place: place, ..Reply::json(line) })
    }

    /// Asks the reader.
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

    /// Does what may take long on a thread for it, in one of few places: a disk that hangs holds so many
    /// threads, and no more. The place is given up with what comes of it.
    async fn on_a_thread<T: Send + 'static>(
        &self,
        most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Option<OwnedSemaphorePermit>), Refused> {
        let room = Arc::clone(&self.session.room);
        let worked = async move {
            // Closed by nobody.
            let place = room.acquire_owned().await.ok();
            // It goes on when the time is over, and the place goes with what was begun.
            spawn_blocking(move || (work(), place)).await
        };
        match timeout(most, worked).await {
            Ok(worked) => worked.map_err(Refused::busy),
            Err(_) => Err(Refused::busy("it took too long")),
        }
    }
}

/// Why storage did not do it. What is rejected it will not do later either: a daemon allows its relay no such order.
fn undone(error: StoreError) -> Refused {
    match error {
        StoreError::Rejected(text) => Refused { code: ErrorCode::Denied, text: text.into() },
        error => Refused::busy(error),
    }
}

/// Says which of the running daemon's options decides.
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

/// What became of a task.
fn added_line(key: &Key, added: StoreResult<Added>, turn: Option<&Turn>) -> Reply {
    let added = match added {
        Ok(added) => added,
        Err(error) => return Reply::refused(undone(error)),
    };
    if added == Added::Full {
        let text = "there are as many single tasks as may be (max_single_tasks); add it later";
        return Reply::refused(Refused::new(ErrorCode::Full, text));
    }
    let object = json!({
        "key": key.as_str(),
        "added": matches!(added, Added::Added(_)),
        "keys_before": turn.and_then(|turn| turn.keys_before),
        "exact": turn.is_some_and(|turn| turn.exact),
        "tasks_before": turn.map(|turn| turn.tasks_before),
    });
    Reply::json(object)
}

/// A job, as soon as there is one.
async fn wait_for_work(storage: Addr<StorageActor>, holder: LeaseHolder, until: Instant) -> Reply {
    match timeout_at(until, storage.send(messages::Wait { holder })).await {
        Err(_) => no_jobs(&storage).await,
        Ok(Ok(Ok(Work::Job(job)))) => Reply::leased(job),
        Ok(Ok(Ok(Work::Nothing | Work::Later))) => Reply::line(&Answer::NoJobs(Idle::Nothing)),
        Ok(Ok(Err(error))) => Reply::refused(Refused::busy(error)),
        Ok(Err(_)) => Reply::refused(Refused::busy(STOPPING)),
    }
}

/// That there is no job, and why. Should that not be known, the first holds all the same.
async fn no_jobs(storage: &Addr<StorageActor>) -> Reply {
    let why = in_time("storage", storage.send(Perform(WhyIdle))).await;
    let idle = why.map(Result::unwrap_or_default).unwrap_or_default();
    Reply::line(&Answer::NoJobs(idle))
}

/// Awaits an actor's answer, as long as a request may take.
async fn in_time<T>(
    who: &str,
    sent: impl Future<Output = Result<T, MailboxError>>,
) -> Result<T, Refused> {
    answered(who, sent, Instant::now() + REQUEST_TIMEOUT).await
}
