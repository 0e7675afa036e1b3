//! What a line of protocol 2 is answered: asking storage, the watcher and the reader.
//!
//! Plain futures over [`Asker`], awaited by the [session](super::session); they know no connection.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use bytes::BytesMut;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::WorkLinks;
use super::answer::{REQUEST_TIMEOUT, answered, next_work};
use super::session::SessionLinks;
use crate::clock::{Clock, SystemClock};
use crate::file_watcher::{AcceptInput, Accepted};
use crate::live::{Health, Live, LiveStatus, Report, SpoolLive};
use crate::refused::Refused;
use crate::service::{LookAtSpool, RunFetcher};
use crate::storage::messages::{
    Change, Controlled, HandOut, HowAreYou, Next, Perform, Stepped, Tell, Work,
};
use crate::store::answers::Turn;
use crate::store::{
    Ack, AddTask, Added, Ask, Cancelled, Each, EndedAttempts, LeaseHolder, NextJobs, Requeued,
    Status, StoreResult, Turns, WhyIdle, WhyKey,
};
use shiftboss_protocol::model::{Attempt, Key, Row};
use shiftboss_protocol::wire::session::{Control, ErrorCode, SessionAnswer, SessionRequest, Word};

/// How long an operator's question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same of the turns of tasks that were added: they are answered without them otherwise.
const TURNS_TIMEOUT: Duration = Duration::from_secs(2);

/// What is written, and what is done then.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) bytes: BytesMut,
    /// A job among them: written, it is the worker's.
    pub(super) job: Option<HandOut>,
    /// There was no work; the worker waits for some until then.
    pub(super) wait: Option<Instant>,
    /// Errors among them; ten close a connection.
    pub(super) errors: u32,
    /// Held until it is written: a long report lies in memory as long.
    pub(super) place: Option<OwnedSemaphorePermit>,
    pub(super) close: bool,
}

impl Reply {
    pub(super) fn line(answer: &SessionAnswer<'_>) -> Self {
        let mut reply = Self::default();
        answer.encode(&mut reply.bytes);
        reply
    }

    pub(super) fn error(code: ErrorCode, text: &str) -> Self {
        Self { errors: 1, ..Self::line(&SessionAnswer::Error(code, text)) }
    }

    pub(super) fn refused(Refused(code, text): Refused) -> Self {
        Self::error(code, &text)
    }

    fn json(line: &str) -> Self {
        Self::line(&SessionAnswer::Json(line))
    }

    fn ack(ack: Ack) -> Self {
        match ack {
            Ack::Recorded => Self::line(&SessionAnswer::Ok),
            Ack::Stale => Self::error(
                ErrorCode::Stale,
                "that attempt ended otherwise: its job was handed on, given back, or done",
            ),
            Ack::Unknown => Self::error(ErrorCode::Unknown, "there is no such attempt"),
        }
    }

    pub(super) fn job(job: HandOut) -> Self {
        let reply = Self::line(&SessionAnswer::Job(Some(job.attempt()), job.job()));
        Self { job: Some(job), ..reply }
    }

    pub(super) fn and_close(self) -> Self {
        Self { close: true, ..self }
    }

    /// The same, with the lines of another one before it.
    pub(super) fn after(self, mut before: Self) -> Self {
        before.bytes.unsplit(self.bytes);
        Self { bytes: before.bytes, errors: before.errors + self.errors, ..self }
    }
}

/// A reply, or the error that it is.
type Answered = Result<Reply, Refused>;

pub(super) struct Asker {
    pub(super) work: WorkLinks,
    pub(super) session: SessionLinks,
    pub(super) holder: LeaseHolder,
    /// It is the daemon's own user, root, or a member of the operators' group.
    pub(super) is_operator: bool,
}

impl Asker {
    /// One flat match over all requests.
    pub(super) async fn reply(self, request: SessionRequest) -> Reply {
        if request.is_of_an_operator() && !self.is_operator {
            let lines = if let SessionRequest::Add(tasks) = &request { tasks.len() } else { 1 };
            return together((0..lines).map(|_| denied()));
        }
        let answered = match request {
            SessionRequest::Ready { wait } => self.ready(wait).await,
            SessionRequest::Attempt(attempt, word) => self.tell(attempt, word).await,
            SessionRequest::Next { attempt, exit_code, wait } => {
                return self.next(attempt, exit_code, wait).await;
            }
            SessionRequest::Quit => Ok(Reply::line(&SessionAnswer::Ok).and_close()),
            SessionRequest::Health => self.health().await,
            SessionRequest::Add(tasks) => return self.add(tasks).await,
            SessionRequest::Status => self.status().await,
            SessionRequest::Why(key) => self.why(key).await,
            SessionRequest::Queue(count) => self.look(NextJobs(size(count)), Ok).await,
            SessionRequest::Log(count) => {
                let asked = EndedAttempts { count: size(count), ..EndedAttempts::default() };
                self.look(asked, Ok).await
            }
            SessionRequest::Control(control) => self.change(control).await,
            SessionRequest::AcceptInput => self.accept_input().await,
            SessionRequest::RunFetcher(name) => self.run_fetcher(name).await,
        };
        answered.unwrap_or_else(Reply::refused)
    }

    async fn ready(self, wait: Duration) -> Answered {
        let until = (!wait.is_zero()).then(|| Instant::now() + wait);
        Ok(match next_work(None, Some(self.holder), &self.work).await? {
            Some(job) => Reply::job(job),
            None if until.is_some() => Reply { wait: until, ..Reply::default() },
            None => no_jobs(&self.session.why_idle).await,
        })
    }

    async fn tell(self, attempt: Attempt, word: Word) -> Answered {
        match in_time("storage", self.session.tell.send(Tell { attempt, word })).await? {
            Ack::Stale | Ack::Unknown if word == Word::Beat => {
                Ok(Reply::line(&SessionAnswer::Lost))
            }
            ack => Ok(Reply::ack(ack)),
        }
    }

    /// Two lines in one step, each with its answer.
    async fn next(self, attempt: Attempt, exit_code: i64, wait: Duration) -> Reply {
        let next = Next { attempt, exit_code, holder: self.holder.clone() };
        match in_time("storage", self.session.next.send(next)).await {
            Ok(Stepped { ack, work: Work::Job(job) }) => Reply::job(job).after(Reply::ack(ack)),
            Ok(Stepped { ack, .. }) => {
                let ready = self.ready(wait).await;
                ready.unwrap_or_else(Reply::refused).after(Reply::ack(ack))
            }
            Err(refused) => Reply::refused(refused.clone()).after(Reply::refused(refused)),
        }
    }

    async fn change(self, control: Control) -> Answered {
        let key = match &control {
            Control::Retry(key, _) | Control::Requeue(key) | Control::Cancel(key) => {
                Some(key.clone())
            }
            Control::Pause | Control::Resume | Control::Drain => None,
        };
        let unknown = |text| Err(Refused::unknown(text));
        match in_time("storage", self.session.change.send(Change(control))).await? {
            Controlled::Retried(None) => {
                unknown("no fetcher lists that key, and no single task has it")
            }
            Controlled::Requeued(Requeued::Unknown) => {
                unknown("no fetcher lists that key, and nobody has it")
            }
            Controlled::Cancelled(Cancelled { deleted: 0, in_flight: false, .. }) => {
                unknown("there is no single task of that key")
            }
            controlled => Ok(Reply::json(&json_of(controlled, key.as_ref()))),
        }
    }

    async fn accept_input(self) -> Answered {
        let accepted = in_time("the watcher", self.session.accept_input.send(AcceptInput)).await?;
        Ok(Reply::json(&json!({"accepted": accepted == Accepted::Taken}).to_string()))
    }

    async fn run_fetcher(self, name: Arc<str>) -> Answered {
        let none = || Refused::unknown("this daemon runs no fetchers");
        let fetchers = self.session.run_fetcher.ok_or_else(none)?;
        Ok(Reply::json(&in_time("the fetchers", fetchers.send(RunFetcher(name))).await?))
    }

    /// What cannot be written cannot be handed out.
    async fn health(self) -> Answered {
        let Health { in_flight, draining, outage } =
            in_time("storage", self.session.health.send(HowAreYou { lock: true })).await?;
        match outage {
            Some(outage) => Err(Refused::busy(outage.error)),
            None => {
                let health = json!({"in_flight": in_flight, "draining": draining});
                Ok(Reply::json(&health.to_string()))
            }
        }
    }

    /// What the database does not know.
    async fn live(&self) -> Option<Live> {
        let asked = self.session.health.send(HowAreYou { lock: false });
        let health = in_time("storage", asked).await.ok()?;
        let workers = self.session.workers.connected();
        let spool = match self.session.spool.clone() {
            Some(look) => self.look_at_spool(look).await,
            None => None,
        };
        Some(Live { health, workers, spool })
    }

    /// In a place for those who read: a disk that hangs holds so many threads, and no more.
    async fn look_at_spool(&self, look: LookAtSpool) -> Option<SpoolLive> {
        let room = Arc::clone(&self.session.room);
        let looked = async move {
            let place = room.acquire_owned().await;
            let looked = spawn_blocking(move || {
                let looked = look();
                drop(place);
                looked
            });
            looked.await.ok()
        };
        timeout(ANSWER_TIMEOUT, looked).await.ok()?
    }

    /// Tasks of several lines in one step, each with its answer.
    async fn add(self, tasks: Vec<Row>) -> Reply {
        let keys: Vec<Key> = tasks.iter().map(|task| task.key.clone()).collect();
        let tasks = Each(tasks.into_iter().map(AddTask).collect());
        let added = match in_time("storage", self.session.add.send(Perform(tasks))).await {
            Ok(added) => added,
            Err(refused) => {
                return together(keys.iter().map(|_| Reply::refused(refused.clone())));
            }
        };
        let turns = read(&self.session, TURNS_TIMEOUT, Turns(keys.clone()), |turns| turns).await;
        let turns = turns.map_or_else(|_| Vec::new(), |(turns, _)| turns);
        let answers = keys.iter().zip(added).enumerate();
        together(answers.map(|(at, (key, added))| added_line(key, added, turns.get(at))))
    }

    async fn status(self) -> Answered {
        let live = self.live().await;
        self.look(Status, |queue| Ok(LiveStatus { queue, live })).await
    }

    async fn why(self, key: Key) -> Answered {
        self.look(WhyKey(key.to_string()), move |found| {
            let unknown = || Refused::unknown(&format!("nobody ever heard of {key}"));
            found.ok_or_else(unknown)
        })
        .await
    }

    /// An answer, made into what is shown of it, as one line of JSON.
    async fn look<Q: Ask<Answer: Send> + Send + 'static, T: Serialize>(
        self,
        question: Q,
        show: impl FnOnce(Q::Answer) -> Result<T, Refused> + Send + 'static,
    ) -> Answered {
        let daemon = Arc::clone(&self.session.operators.daemon);
        let line = move |answer| {
            let found = &show(answer)?;
            let (database, daemon) = (daemon.database.as_path(), Some(&*daemon));
            let report = Report { database, daemon, daemon_unknown: None, found };
            serde_json::to_string(&report).map_err(Refused::busy)
        };
        let (line, place) = read(&self.session, ANSWER_TIMEOUT, question, line).await?;
        Ok(Reply { place, ..Reply::json(&line?) })
    }
}

/// Asks the reader, and makes something of the answer on a thread for it: it can be long. The place that it
/// took is given up with the reply.
async fn read<Q: Ask<Answer: Send> + Send + 'static, T: Send + 'static>(
    links: &SessionLinks,
    most: Duration,
    question: Q,
    then: impl FnOnce(Q::Answer) -> T + Send + 'static,
) -> Result<(T, Option<OwnedSemaphorePermit>), Refused> {
    let (reader, room) = (Arc::clone(&links.operators.reader), Arc::clone(&links.room));
    let asked = async move {
        // Closed by nobody.
        let place = room.acquire_owned().await.ok();
        // A task, which is not dropped when the time is over: the place goes with what was begun.
        tokio::spawn(async move {
            let answer = reader.ask(SystemClock.now(), question).await?;
            let made = spawn_blocking(move || (then(answer), place)).await;
            made.map_err(Refused::busy)
        })
        .await
    };
    match timeout(most, asked).await {
        Ok(answered) => answered.map_err(Refused::busy)?,
        Err(_) => Err(Refused::busy("it took too long")),
    }
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn denied() -> Reply {
    Reply::error(
        ErrorCode::Denied,
        "for the daemon's own user, root, and the group of --operator-group",
    )
}

/// The lines of several replies, in order.
fn together(replies: impl Iterator<Item = Reply>) -> Reply {
    replies.fold(Reply::default(), |before, reply| reply.after(before))
}

/// What became of a task.
fn added_line(key: &Key, added: StoreResult<Added>, turn: Option<&Turn>) -> Reply {
    let added = match added {
        Ok(added) => added,
        Err(error) => return Reply::error(ErrorCode::Busy, &error.to_string()),
    };
    if added == Added::Full {
        // No fault of who asks: it does not count towards a close.
        let text = "there are as many single tasks as may be (max_single_tasks); add it later";
        return Reply { errors: 0, ..Reply::error(ErrorCode::Full, text) };
    }
    let object = json!({
        "key": key.as_str(),
        "added": added == Added::Added,
        "keys_before": turn.and_then(|turn| turn.keys_before),
        "exact": turn.is_some_and(|turn| turn.exact),
        "tasks_before": turn.map(|turn| turn.tasks_before),
    });
    Reply::json(&object.to_string())
}

/// That there is no job, and why. Should that not be known, the first holds all the same.
pub(super) async fn no_jobs(why_idle: &Recipient<Perform<WhyIdle>>) -> Reply {
    let idle = in_time("storage", why_idle.send(Perform(WhyIdle))).await.unwrap_or_default();
    Reply::line(&SessionAnswer::NoJobs(idle))
}

/// Awaits an actor's answer, as long as a request may take.
async fn in_time<M, T, E>(who: &str, sent: RecipientRequest<M>) -> Result<T, Refused>
where
    M: Message<Result = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<Refused> + Send + 'static,
{
    answered(who, sent, Instant::now() + REQUEST_TIMEOUT).await
}

/// What came of a change, as JSON.
fn json_of(controlled: Controlled, key: Option<&Key>) -> String {
    let key = key.map(Key::as_str);
    let object = match controlled {
        Controlled::Retried(rows) => json!({"key": key, "rows": rows.unwrap_or(0)}),
        Controlled::Requeued(Requeued::Back(attempt)) => {
            json!({"key": key, "requeued": true, "attempt": attempt.0})
        }
        Controlled::Requeued(_) => json!({"key": key, "requeued": false}),
        Controlled::Paused(paused) => json!({"paused": paused}),
        Controlled::Cancelled(Cancelled { deleted, more, in_flight }) => {
            json!({"key": key, "deleted": deleted, "more": more, "in_flight": in_flight})
        }
        Controlled::Draining(in_flight) => json!({"paused": true, "in_flight": in_flight}),
    };
    object.to_string()
}
