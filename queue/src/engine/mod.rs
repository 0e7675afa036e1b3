//! The engine carries out a batch, the same for every store: what its operations name is loaded in one step, the rules are applied
//! in turn, and what changed is saved in one step. *A reply means it is on disk*: [`apply`](Engine::apply) returns after the commit.
//!
//! Called by the StorageActor, which gathers operations. It decides nothing about a key; [rules] do. An operation that is
//! rejected changes nothing, so a batch has no savepoints and no second try.

mod desk;
mod hand_out;
mod keys;
mod runs;

use std::sync::Arc;

use crate::attempt::EndedAttempt;
use crate::context::{Context, Settings};
use crate::operation::{Answer, Operation, Rejected};
use crate::place::Turn;
use crate::record::{FetcherId, Millis};
use crate::records::{Changes, From, Header, Name, Records, StoreResult};
use crate::rules;
use crate::rules::dispatch::Scope;
use desk::Desk;
use hand_out::Ahead;

/// Keys that one operation wakes, or sees and leaves, at most: a request waits for no more.
pub const STEP_KEYS: usize = 250;

/// What an operation comes to; the store's own errors end the batch.
type Carried = StoreResult<Result<Answer, Rejected>>;

/// See the module.
#[derive(Debug)]
pub struct Engine<S> {
    store: S,
    settings: Arc<Settings>,
    header: Header,
}

impl<S: Records> Engine<S> {
    pub fn new(store: S, settings: Settings) -> Self {
        Self { store, settings: Arc::new(settings), header: Header::default() }
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn into_store(self) -> S {
        self.store
    }

    /// Carries out a batch in order, as one transaction; each operation is answered in its place.
    ///
    /// # Errors
    /// Nothing of the batch has happened.
    pub async fn apply(
        &mut self,
        now: Millis,
        batch: Vec<Operation>,
    ) -> StoreResult<Vec<Result<Answer, Rejected>>> {
        if let Some(header) = self.store.begin().await? {
            self.header = header;
        }
        let before = self.header.clone();
        let mut work = Batch::new(&mut self.store, &mut self.header, &self.settings, now);
        let outcome = work.carry_out(batch).await;
        match outcome {
            Ok(answers) => Ok(answers),
            Err(error) => {
                self.store.roll_back().await;
                self.header = before;
                Err(error)
            }
        }
    }
}

/// A batch under way.
struct Batch<'a, S> {
    store: &'a mut S,
    header: &'a mut Header,
    context: Context,
    desk: Desk,
    /// The next keys of the store, until something is written.
    ahead: Ahead,
    ended: Vec<EndedAttempt>,
    /// Keys that were looked at in vain for a dispatch.
    in_vain: usize,
}

impl<'a, S: Records> Batch<'a, S> {
    fn new(
        store: &'a mut S,
        header: &'a mut Header,
        settings: &Arc<Settings>,
        now: Millis,
    ) -> Self {
        let context = Context::of(header, settings, now);
        Self {
            store,
            header,
            context,
            desk: Desk::default(),
            ahead: Ahead::default(),
            ended: Vec::new(),
            in_vain: 0,
        }
    }

    async fn carry_out(
        &mut self,
        batch: Vec<Operation>,
    ) -> StoreResult<Vec<Result<Answer, Rejected>>> {
        let names: Vec<Name> = batch.iter().flat_map(names).collect();
        self.bring(&names).await?;
        let mut answers = Vec::with_capacity(batch.len());
        self.ahead = Ahead::of(&batch);
        for operation in batch {
            answers.push(self.one(operation).await?);
        }
        self.flush().await?;
        self.store.commit().await?;
        Ok(answers)
    }

    async fn one(&mut self, operation: Operation) -> Carried {
        use Operation as Op;
        match operation {
            Op::Dispatch { holder, fetchers } => self.dispatch(holder, fetchers).await,
            Op::HasWork => self.has_work().await,
            Op::RegisterRun(run) => Ok(Ok(self.register(run))),
            Op::AddRows(rows) => self.add_rows(rows).await,
            Op::Prune { run, limit } => self.prune(&run, limit).await,
            Op::BeginDeletion(run) => Ok(Ok(self.begin_deletion(&run))),
            Op::DeleteRuns { runs, limit } => self.delete_runs(&runs, limit).await,
            Op::Wake => self.wake().await,
            Op::NextDue => self.next_due().await,
            Op::SetPaused(paused) => {
                self.header.paused = paused;
                Ok(Ok(Answer::Count(self.in_flight())))
            }
            on_key => self.on_key(on_key).await,
        }
    }

    /// So many jobs are out.
    fn in_flight(&self) -> u64 {
        let mut counts = self.header.counts.clone();
        counts.merge(&self.desk.tally());
        counts.0.values().map(|it| u64::try_from(it.in_flight).unwrap_or(0)).sum()
    }

    /// Writes what was changed so far, for questions that the store answers; what lay before the batch is loaded again.
    async fn flush(&mut self) -> StoreResult<()> {
        self.header.last_attempt = self.context.last_attempt.0;
        self.header.last_bump = self.context.last_bump;
        self.header.counts.merge(&self.desk.tally());
        self.ahead.clear();
        let (records, ended) = (self.desk.clear(), std::mem::take(&mut self.ended));
        self.store.save(Changes { records, ended, header: self.header.clone() }).await
    }

    /// The records of these keys lie before the batch, as far as there are any.
    async fn bring(&mut self, names: &[Name]) -> StoreResult<()> {
        let stored = self.store.load(names).await?;
        for (name, stored) in names.iter().zip(stored) {
            let Some(stored) = stored else { continue };
            let slot = self.desk.put(stored);
            if let Name::Attempt(attempt) = name {
                self.desk.note_attempt(*attempt, slot);
            }
        }
        Ok(())
    }

    /// Holds and delays whose time is over.
    async fn wake(&mut self) -> Carried {
        self.flush().await?;
        let due =
            self.store.next(From::Due(self.context.now), None, &Scope::All, STEP_KEYS).await?;
        let now = Turn::Started(self.context.seconds());
        let later = self.store.next(From::Later(now), None, &Scope::All, STEP_KEYS).await?;
        let woken = due.len() as u64;
        for stored in due.into_iter().chain(later) {
            let slot = self.desk.put(stored);
            rules::holds::wake(self.desk.record_mut(slot), &mut self.context);
            self.changed(slot);
        }
        Ok(Ok(Answer::Count(woken)))
    }

    async fn next_due(&mut self) -> Carried {
        self.flush().await?;
        let due = self.store.next(From::Due(Millis::MAX), None, &Scope::All, 1).await?;
        Ok(Ok(Answer::Due(due.first().and_then(|stored| stored.place.due))))
    }

    /// A rule changed the record.
    fn changed(&mut self, slot: usize) {
        rules::tidy(self.desk.record_mut(slot));
        self.desk.changed(slot, &self.context);
    }

    /// The number of a fetcher's name, if it has one.
    fn fetcher(&self, name: &str) -> Option<FetcherId> {
        if name == shiftboss_protocol::model::TASKS_FETCHER {
            return Some(FetcherId::TASKS);
        }
        self.context.fetchers.iter().find(|(_, known)| &***known == name).map(|(id, _)| *id)
    }
}

/// The records that an operation is about, as far as it can tell.
fn names(operation: &Operation) -> Vec<Name> {
    use Operation as Op;
    match operation {
        Op::Complete { key, .. }
        | Op::Requeue(key)
        | Op::Retry { key, .. }
        | Op::Hold { key, .. }
        | Op::Unhold(key)
        | Op::Bump { key, .. }
        | Op::Forget(key)
        | Op::CancelTasks(key)
        | Op::EditLog { key, .. }
        | Op::EditRows { key, .. } => vec![Name::Key(key.clone())],
        Op::CompleteAttempt { attempt, .. }
        | Op::Release(attempt)
        | Op::Heartbeat(attempt)
        | Op::Expire(attempt)
        | Op::Undo(attempt) => vec![Name::Attempt(*attempt)],
        Op::AddTask { task, id } => {
            let id = id.iter().cloned().map(Name::TaskId);
            std::iter::once(Name::Key(task.key.clone())).chain(id).collect()
        }
        Op::AddRows(rows) => rows.rows.iter().map(|row| Name::Key(row.key.clone())).collect(),
        _ => Vec::new(),
    }
}
