//! What a line of protocol 2 is answered: asking storage, the watcher and the reports.
//!
//! Plain futures over [`Asker`], awaited by the [session](super::session); they know no connection.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use bytes::BytesMut;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::WorkLinks;
use super::answer::{REQUEST_TIMEOUT, STOPPING, next_work};
use super::session::SessionLinks;
use crate::file_watcher::{AcceptInput, Accepted};
use crate::live::{Health, Live};
use crate::reports::{ReportError, Reports, Turn};
use crate::service::RunFetcher;
use crate::storage::messages::{
    Change, Controlled, HandOut, HowAreYou, Next, Perform, Stepped, Tell, Work,
};
use crate::store::{
    Ack, AddTask, Added, Cancelled, Each, LeaseHolder, Requeued, StoreResult, WhyIdle,
};
use shiftboss_protocol::model::{Attempt, Key, Row};
use shiftboss_protocol::wire::session::{
    Control, ErrorCode, Fault, Question, SessionAnswer, SessionRequest, Word,
};

/// How long an operator's question may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

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

    pub(super) fn fault(fault: &Fault) -> Self {
        let code = match fault {
            Fault::Usage(_) => ErrorCode::Usage,
            Fault::Version => ErrorCode::Version,
            Fault::Unsupported => ErrorCode::Unsupported,
        };
        Self::error(code, text_of(fault))
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
        let reply = Self::line(&SessionAnswer::Job(job.attempt(), job.job()));
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

/// What a worker did wrong.
pub(super) fn text_of(fault: &Fault) -> &'static str {
    match fault {
        Fault::Usage(text) => text,
        Fault::Version => "this daemon speaks protocol 2",
        Fault::Unsupported => "this daemon has no such request; its HELLO lists those it has",
    }
}

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
        match request {
            SessionRequest::Ready { wait } => self.ready(wait).await,
            SessionRequest::Attempt(attempt, word) => self.tell(attempt, word).await,
            SessionRequest::Next { attempt, exit_code, wait } => {
                self.next(attempt, exit_code, wait).await
            }
            SessionRequest::Quit => Reply::line(&SessionAnswer::Ok).and_close(),
            SessionRequest::Health => self.health().await,
            SessionRequest::Ask(_)
            | SessionRequest::Control(_)
            | SessionRequest::AcceptInput
            | SessionRequest::RunFetcher(_)
                if !self.is_operator =>
            {
                denied()
            }
            SessionRequest::Add(tasks) if !self.is_operator => {
                together(tasks.iter().map(|_| denied()))
            }
            SessionRequest::Add(tasks) => self.add(tasks).await,
            SessionRequest::Ask(question) => self.ask(question).await,
            SessionRequest::Control(control) => self.change(control).await,
            SessionRequest::AcceptInput => self.accept_input().await,
            SessionRequest::RunFetcher(name) => self.run_fetcher(name).await,
        }
    }

    async fn ready(self, wait: Duration) -> Reply {
        let until = (!wait.is_zero()).then(|| Instant::now() + wait);
        match next_work(None, Some(self.holder), &self.work).await {
            Ok(Some(job)) => Reply::job(job),
            Ok(None) if until.is_some() => Reply { wait: until, ..Reply::default() },
            Ok(None) => no_jobs(&self.session.why_idle).await,
            Err(reason) => Reply::error(ErrorCode::Busy, &reason),
        }
    }

    async fn tell(self, attempt: Attempt, word: Word) -> Reply {
        match in_time(self.session.tell.send(Tell { attempt, word })).await {
            Ok(Ack::Stale | Ack::Unknown) if word == Word::Beat => {
                Reply::line(&SessionAnswer::Lost)
            }
            Ok(ack) => Reply::ack(ack),
            Err(reason) => Reply::error(ErrorCode::Busy, &reason),
        }
    }

    /// Two lines in one step, each with its answer.
    async fn next(self, attempt: Attempt, exit_code: i64, wait: Duration) -> Reply {
        let next = Next { attempt, exit_code, holder: self.holder.clone() };
        match in_time(self.session.next.send(next)).await {
            Ok(Stepped { ack, work: Work::Job(job) }) => Reply::job(job).after(Reply::ack(ack)),
            Ok(Stepped { ack, .. }) => self.ready(wait).await.after(Reply::ack(ack)),
            Err(reason) => {
                let busy = || Reply::error(ErrorCode::Busy, &reason);
                busy().after(busy())
            }
        }
    }

    async fn change(self, control: Control) -> Reply {
        let key = match &control {
            Control::Retry(key, _) | Control::Requeue(key) | Control::Cancel(key) => {
                Some(key.clone())
            }
            Control::Pause | Control::Resume | Control::Drain => None,
        };
        match in_time(self.session.change.send(Change(control))).await {
            Ok(Controlled::Retried(None)) => Reply::error(
                ErrorCode::Unknown,
                "no fetcher lists that key, and no single task has it",
            ),
            Ok(Controlled::Requeued(Requeued::Unknown)) => {
                Reply::error(ErrorCode::Unknown, "no fetcher lists that key, and nobody has it")
            }
            Ok(Controlled::Cancelled(Cancelled { deleted: 0, in_flight: false, .. })) => {
                Reply::error(ErrorCode::Unknown, "there is no single task of that key")
            }
            Ok(controlled) => Reply::line(&SessionAnswer::Json(&json_of(controlled, key.as_ref()))),
            Err(reason) => Reply::error(ErrorCode::Busy, &reason),
        }
    }

    async fn accept_input(self) -> Reply {
        let answered = timeout(REQUEST_TIMEOUT, self.session.accept_input.send(AcceptInput)).await;
        match answered {
            Ok(Ok(Ok(accepted))) => {
                let taken = serde_json::json!({"accepted": accepted == Accepted::Taken});
                Reply::line(&SessionAnswer::Json(&taken.to_string()))
            }
            Ok(Ok(Err(reason))) => Reply::error(ErrorCode::Busy, &reason),
            Ok(Err(_)) => Reply::error(ErrorCode::Busy, STOPPING),
            Err(_) => Reply::error(ErrorCode::Busy, "it took too long"),
        }
    }

    async fn run_fetcher(self, name: Arc<str>) -> Reply {
        let Some(fetchers) = self.session.run_fetcher else {
            return Reply::error(ErrorCode::Unknown, "this daemon runs no fetchers");
        };
        match timeout(REQUEST_TIMEOUT, fetchers.send(RunFetcher(name))).await {
            Ok(Ok(answer)) => report(answer),
            Ok(Err(_)) => Reply::error(ErrorCode::Busy, STOPPING),
            Err(_) => Reply::error(ErrorCode::Busy, "it took too long"),
        }
    }

    /// What cannot be written cannot be handed out.
    async fn health(self) -> Reply {
        match in_time(self.session.health.send(HowAreYou { lock: true })).await {
            Ok(Health { outage: Some(outage), .. }) => Reply::error(ErrorCode::Busy, &outage.error),
            Ok(health) => {
                let (in_flight, draining) = (health.in_flight, health.draining);
                let line = serde_json::json!({"in_flight": in_flight, "draining": draining});
                Reply::line(&SessionAnswer::Json(&line.to_string()))
            }
            Err(reason) => Reply::error(ErrorCode::Busy, &reason),
        }
    }

    /// What the database does not know.
    async fn live(&self) -> Option<Live> {
        let health = in_time(self.session.health.send(HowAreYou { lock: false })).await.ok()?;
        Some(Live { health, workers: self.session.workers.connected(), spool: None })
    }

    /// Tasks of several lines in one step, each with its answer.
    async fn add(self, tasks: Vec<Row>) -> Reply {
        let keys: Vec<Key> = tasks.iter().map(|task| task.key.clone()).collect();
        let added = match in_time(
            self.session.add.send(Perform(Each(tasks.into_iter().map(AddTask).collect()))),
        )
        .await
        {
            Ok(added) => added,
            Err(reason) => {
                return together(keys.iter().map(|_| Reply::error(ErrorCode::Busy, &reason)));
            }
        };
        let asked = keys.clone();
        let turns = looked(self.session, TURNS_TIMEOUT, move |reports| reports.turns(&asked));
        let turns = turns.await.ok().and_then(|(turns, _)| turns.ok()).unwrap_or_default();
        let answers = keys.iter().zip(added).enumerate();
        together(answers.map(|(at, (key, added))| added_line(key, added, turns.get(at))))
    }

    async fn ask(self, question: Question) -> Reply {
        let live = if question == Question::Status { self.live().await } else { None };
        let answered =
            looked(self.session, REPORT_TIMEOUT, move |reports| reports.answer(&question, live));
        match answered.await {
            Ok((answer, place)) => Reply { place, ..report(answer) },
            Err(reason) => Reply::error(ErrorCode::Busy, &reason),
        }
    }
}

/// Asks the reports, on a thread for it; the place that it took is given up with the answer.
async fn looked<T: Send + 'static>(
    SessionLinks { reports, room, .. }: SessionLinks,
    most: Duration,
    ask: impl FnOnce(&dyn Reports) -> T + Send + 'static,
) -> Result<(T, Option<OwnedSemaphorePermit>), String> {
    let answered = timeout(most, async move {
        // Closed by nobody. The place goes with the thread, which nothing can end.
        let place = room.acquire_owned().await.ok();
        tokio::task::spawn_blocking(move || (ask(&*reports), place)).await
    });
    match answered.await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) => Err("it took too long".to_owned()),
    }
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
    let object = serde_json::json!({
        "key": key.as_str(),
        "added": added == Added::Added,
        "keys_before": turn.and_then(|turn| turn.keys_before),
        "exact": turn.is_some_and(|turn| turn.exact),
        "tasks_before": turn.map(|turn| turn.tasks_before),
    });
    Reply::line(&SessionAnswer::Json(&object.to_string()))
}

fn report(answer: Result<String, ReportError>) -> Reply {
    match answer {
        Ok(line) => Reply::line(&SessionAnswer::Json(&line)),
        Err(ReportError::Unknown(text)) => Reply::error(ErrorCode::Unknown, &text),
        Err(ReportError::Unavailable(text)) => Reply::error(ErrorCode::Busy, &text),
    }
}

/// That there is no job, and why. Should that not be known, the first holds all the same.
pub(super) async fn no_jobs(why_idle: &Recipient<Perform<WhyIdle>>) -> Reply {
    let idle = in_time(why_idle.send(Perform(WhyIdle))).await.unwrap_or_default();
    Reply::line(&SessionAnswer::NoJobs(idle))
}

/// Awaits storage's answer, as long as a request may take.
async fn in_time<M, T>(sent: RecipientRequest<M>) -> Result<T, String>
where
    M: Message<Result = StoreResult<T>> + Send + 'static,
    T: Send + 'static,
{
    match timeout(REQUEST_TIMEOUT, sent).await {
        Ok(Ok(result)) => result.map_err(|error| error.to_string()),
        Ok(Err(_)) => Err(STOPPING.to_owned()),
        Err(_) => Err("storage did not answer in time".to_owned()),
    }
}

/// What came of a change, as JSON.
fn json_of(controlled: Controlled, key: Option<&Key>) -> String {
    match (controlled, key) {
        (Controlled::Retried(rows), Some(key)) => {
            serde_json::json!({"key": key.as_str(), "rows": rows.unwrap_or(0)}).to_string()
        }
        (Controlled::Retried(rows), None) => {
            serde_json::json!({"rows": rows.unwrap_or(0)}).to_string()
        }
        (Controlled::Requeued(Requeued::Back(attempt)), Some(key)) => {
            serde_json::json!({"key": key.as_str(), "requeued": true, "attempt": attempt.0})
                .to_string()
        }
        (Controlled::Requeued(_), key) => {
            serde_json::json!({"key": key.map(Key::as_str), "requeued": false}).to_string()
        }
        (Controlled::Paused(paused), _) => serde_json::json!({"paused": paused}).to_string(),
        (Controlled::Cancelled(cancelled), key) => serde_json::json!({
            "key": key.map(Key::as_str),
            "deleted": cancelled.deleted,
            "more": cancelled.more,
            "in_flight": cancelled.in_flight,
        })
        .to_string(),
        (Controlled::Draining(in_flight), _) => {
            serde_json::json!({"paused": true, "in_flight": in_flight}).to_string()
        }
    }
}
