//! Questions about the queue on a server, each on a connection of its own, in one read-only transaction of one
//! snapshot, which does not wait long for locks. The queue's crate makes the answers, the records' crate finds the
//! data.
//!
//! For read-only commands, and for operators' connections. It blocks, and has a runtime for each question, or for
//! several of one moment. It uses the server's time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shiftboss_postgres::Moment;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::look::{Look, Opens};
use shiftboss_queue::reader::{ReadError, ReadResult};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::connection::{Server, limited};
use super::schema;

/// Time limit of one statement.
const STATEMENT_MAX_MS: u128 = 20_000;
/// The longest time for a question, whatever the server does.
const QUESTION_MAX: Duration = Duration::from_secs(30);

pub(crate) struct PostgresReader {
    server: Server,
    /// How long a question may take; all of them, where they are of one moment.
    patience: Duration,
    glance: Option<Mutex<Option<Opened>>>,
}

/// A snapshot that is kept for more than one question, and what its connection runs on.
struct Opened {
    runtime: Runtime,
    moment: Moment,
}

impl PostgresReader {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, patience: QUESTION_MAX, glance: None }
    }

    /// Connects once for all its questions, which are of one moment. Not for a reader that stays.
    pub(crate) fn glance(server: Server, patience: Duration) -> Self {
        Self { server, patience: patience.min(QUESTION_MAX), glance: Some(Mutex::default()) }
    }

    fn at_moment<T>(&self, ask: impl FnOnce(&mut Opened) -> ReadResult<T>) -> ReadResult<T> {
        let Some(glance) = &self.glance else { return ask(&mut self.open()?) };
        let mut moment = glance.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *moment {
            Some(moment) => ask(moment),
            none => ask(none.insert(self.open()?)),
        }
    }

    fn open(&self) -> ReadResult<Opened> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ReadError::Failed(error.to_string()))?;
        let moment = self.in_time(&runtime, self.moment())?;
        Ok(Opened { runtime, moment })
    }

    fn in_time<T>(
        &self,
        runtime: &Runtime,
        doing: impl Future<Output = ReadResult<T>>,
    ) -> ReadResult<T> {
        let done = runtime.block_on(async { timeout(self.patience, doing).await });
        done.unwrap_or_else(|_| {
            let seconds = self.patience.as_secs();
            let text = format!("{} did not answer within {seconds} s", self.server.url());
            Err(ReadError::Unavailable(text))
        })
    }

    async fn moment(&self) -> ReadResult<Moment> {
        let client = self.server.connect().await.map_err(unopened)?;
        // The server ends statements for which we no longer wait.
        let ms = self.patience.as_millis().min(STATEMENT_MAX_MS);
        let begin = format!("SET statement_timeout = {ms}");
        limited(client.batch_execute(&begin)).await.map_err(unopened)?;
        let version = schema::version(&client).await.map_err(unopened)?;
        if version == 0 {
            return Err(ReadError::Unavailable(format!(
                "there is no queue in {}: start `shiftboss serve` on it",
                self.server.url()
            )));
        }
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        Moment::of(client, version).await.map_err(unread)
    }
}

impl Opens for PostgresReader {
    type Found = Moment;

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Moment>) -> StoreResult<T>,
    ) -> ReadResult<T> {
        self.at_moment(|Opened { runtime, moment }| {
            self.in_time(runtime, async {
                let answer = async { question(&mut Look::at(moment, now).await?).await };
                answer.await.map_err(unread)
            })
        })
    }
}

fn unopened(error: StoreError) -> ReadError {
    match error {
        StoreError::Busy(text) => ReadError::Unavailable(text),
        StoreError::Corrupt(text) => ReadError::Corrupt(text),
        StoreError::Denied(text) | StoreError::Fatal(text) | StoreError::Newer(text) => {
            ReadError::Foreign(text)
        }
        error => ReadError::Failed(error.to_string()),
    }
}

fn unread(error: StoreError) -> ReadError {
    match error {
        StoreError::Denied(text) => ReadError::Denied(text),
        StoreError::Fatal(text) => ReadError::Failed(text),
        error => unopened(error),
    }
}
