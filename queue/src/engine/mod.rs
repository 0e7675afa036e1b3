//! The engine carries out a batch, the same for every store: what its operations name is loaded in one step, the rules are applied
//! in turn, and what changed is saved in one step. *A reply means it is on disk*: [`apply`](Engine::apply) returns after the commit.
//!
//! Called by the StorageActor, which gathers operations. It decides nothing about a key; [rules] do. An operation that is
//! rejected changes nothing, so a batch has no savepoints and no second try.

mod desk;
mod hand_out;
mod keys;
mod runs;

use std::collections::HashMap;
use std::sync::Arc;

use crate::attempt::EndedAttempt;
use crate::context::{Context, Settings};
use crate::operation::{Answer, Lease, Operation, Rejected};
use crate::place::Turn;
use crate::record::{FetcherId, Millis};
use crate::records::{Changes, From, Header, KeyId, Name, Outset, Records, StoreResult, Stored};
use crate::rules;
use crate::rules::dispatch::Scope;
use crate::sums::{Oldest, Sums};
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
    memo: Memo,
}

/// What is remembered from batch to batch, and may be forgotten.
#[derive(Debug, Default)]
struct Memo {
    /// The minute in which the store was last told what is too old.
    swept: Option<i64>,
    /// The last key that has followed the clock, if others have not.
    followed: Option<Stored>,
    /// Of runs that are pruned: the reading that is the whole list, and the last key that was looked at.
    pruned: HashMap<(FetcherId, i64), (i64, KeyId)>,
}

impl<S: Records> Engine<S> {
    pub fn new(store: S, settings: Settings) -> Self {
        let (settings, header) = (Arc::new(settings), Header::default());
        Self { store, settings, header, memo: Memo::default() }
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
        let outset = outset(&batch);
        // What others edited comes first, a step at a time, so that this batch sees all of it.
        loop {
            match self.begin(&outset, now).await {
                Ok((now, edits)) if edits.is_empty() => {
                    return self.carry_out(now, batch, &outset).await;
                }
                Ok((now, edits)) => {
                    let outset = self::outset(&edits);
                    self.carry_out(now, edits, &outset).await?;
                }
                Err(error) => {
                    self.store.roll_back().await;
                    return Err(error);
                }
            }
        }
    }

    /// The time that counts, and what others edited.
    async fn begin(
        &mut self,
        outset: &Outset,
        now: Millis,
    ) -> StoreResult<(Millis, Vec<Operation>)> {
        let begun = self.store.begin(outset).await?;
        if let Some(header) = begun.header {
            self.header = header;
        }
        Ok((begun.now.unwrap_or(now), self.store.edits(STEP_KEYS).await?))
    }

    /// In the transaction that is open, which is committed or rolled back.
    async fn carry_out(
        &mut self,
        now: Millis,
        batch: Vec<Operation>,
        outset: &Outset,
    ) -> StoreResult<Vec<Result<Answer, Rejected>>> {
        let before = self.header.clone();
        let outcome = Batch::new(self, now).carry_out(batch, outset).await;
        if outcome.is_err() {
            self.store.roll_back().await;
            (self.header, self.memo) = (before, Memo::default());
        }
        outcome
    }
}

/// A batch under way.
struct Batch<'a, S> {
    store: &'a mut S,
    header: &'a mut Header,
    memo: &'a mut Memo,
    context: Context,
    desk: Desk,
    /// The next keys of the store, until something is written.
    ahead: Ahead,
    ended: Vec<EndedAttempt>,
    sums: Sums,
    /// Single tasks that there are, if no rule but their own changed anything since they were counted.
    singles: Option<u64>,
    /// Keys that were looked at in vain for a dispatch.
    in_vain: usize,
}

impl<'a, S: Records> Batch<'a, S> {
    fn new(engine: &'a mut Engine<S>, now: Millis) -> Self {
        let Engine { store, settings, header, memo } = engine;
        let context = header.context(settings, now);
        Self {
            store,
            header,
            memo,
            context,
            desk: Desk::default(),
            ahead: Ahead::default(),
            ended: Vec::new(),
            sums: Sums::default(),
            singles: None,
            in_vain: 0,
        }
    }

    async fn carry_out(
        &mut self,
        batch: Vec<Operation>,
        outset: &Outset,
    ) -> StoreResult<Vec<Result<Answer, Rejected>>> {
        self.ahead = Ahead::of(outset);
        self.desk.reserve(outset.names.len() + self.ahead.count);
        self.bring(&outset.names).await?;
        let mut answers = Vec::with_capacity(batch.len());
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
            Op::RegisterRun(run) => Ok(self.register(run)),
            Op::AddRows(rows) => self.add_rows(rows).await,
            Op::Prune { run, limit } => self.prune(&run, limit).await,
            Op::BeginDeletion(run) => Ok(Ok(self.begin_deletion(&run))),
            Op::DeleteRuns { runs, limit } => self.delete_runs(&runs, limit).await,
            Op::Wake => self.wake().await,
            Op::FollowClock { by } => self.follow_clock(by).await,
            Op::NextDue => self.next_due().await,
            Op::Leases => self.leases().await,
            Op::SetPaused(paused) => {
                self.header.paused = paused;
                Ok(Ok(Answer::Count(self.in_flight())))
            }
            on_key => match (on_key.attempt(), on_key.key().cloned()) {
                (Some(attempt), _) => self.on_attempt(attempt, on_key).await,
                (None, Some(key)) => self.on_key(key, on_key).await,
                (None, None) => Ok(Err(Rejected(format!("{on_key:?} is about no key")))),
            },
        }
    }

    /// So many jobs are out.
    fn in_flight(&self) -> u64 {
        let mut counts = self.header.counts.clone();
        counts.merge(&self.desk.tally());
        let jobs = counts.0.values().map(|it| u64::try_from(it.in_flight).unwrap_or(0));
        jobs.fold(0, u64::saturating_add)
    }

    /// Writes what was changed so far, for questions that the store answers; what lay before the batch is loaded again.
    async fn flush(&mut self) -> StoreResult<()> {
        self.header.last_attempt = self.context.last_attempt.0;
        self.header.last_bump = self.context.last_bump;
        self.header.counts.merge(&self.desk.tally());
        self.ahead.clear();
        let (records, ended) = (self.desk.clear(), std::mem::take(&mut self.ended));
        let mut sums = std::mem::take(&mut self.sums);
        let kept = self.context.settings.singles_kept;
        let oldest = Oldest::at(self.context.now, self.header.last_single.saturating_sub(kept));
        sums.tidy(oldest);
        let minute = self.context.now.div_euclid(60_000);
        let is_due = !records.is_empty() && self.memo.swept.replace(minute) != Some(minute);
        let oldest = is_due.then_some(oldest);
        let header = self.header.clone();
        self.store.save(Changes { records, ended, header, sums, oldest }).await
    }

    /// The records of these keys lie before the batch; of a key that nothing is known of, too, so that it is not looked for again.
    async fn bring(&mut self, names: &[Name]) -> StoreResult<()> {
        let stored = self.store.load(names).await?;
        for (name, stored) in names.iter().zip(stored) {
            match (name, stored) {
                (Name::Attempt(attempt), Some(stored)) => {
                    let slot = self.desk.put(stored);
                    self.desk.note_attempt(*attempt, slot);
                }
                (_, Some(stored)) => drop(self.desk.put(stored)),
                (Name::Key(key), None) if self.desk.slot_of(key).is_none() => {
                    self.desk.put_new(key.clone());
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// Holds and delays whose time is over.
    async fn wake(&mut self) -> Carried {
        self.flush().await?;
        let due =
            self.store.next(From::Due(self.context.now), None, &Scope::All, STEP_KEYS).await?;
        let ahead = self.ahead_of_now(STEP_KEYS).await?;
        let woken = due.len() + ahead.len();
        for stored in due.into_iter().chain(ahead) {
            let slot = self.desk.put(stored);
            rules::holds::wake(self.desk.record_mut(slot), &mut self.context);
            self.changed(slot);
        }
        Ok(Ok(Answer::Count(woken as u64)))
    }

    /// Keys whose turns lie in the future: a clock was ahead. Under `--classic` that is their place.
    async fn ahead_of_now(&mut self, count: usize) -> StoreResult<Vec<Stored>> {
        if !self.context.settings.is_fair {
            return Ok(Vec::new());
        }
        let now = Turn::Started(self.context.seconds());
        self.store.next(From::Later(now), None, &Scope::All, count).await
    }

    async fn follow_clock(&mut self, by: Millis) -> Carried {
        self.header.clock = self.header.clock.saturating_add(by);
        self.context.clock = self.header.clock;
        self.flush().await?;
        // Those that have followed are left as they are, so it may begin anew.
        let behind = self.memo.followed.take().filter(|_| by == 0);
        let next = self.store.next(From::Dues, behind.as_ref(), &Scope::All, STEP_KEYS).await?;
        let is_more = next.len() == STEP_KEYS;
        self.memo.followed = next.last().filter(|_| is_more).cloned();
        for stored in next {
            let slot = self.desk.put(stored);
            rules::clocks::follow(self.desk.record_mut(slot), &self.context);
            self.changed(slot);
        }
        Ok(Ok(Answer::Is(is_more)))
    }

    async fn next_due(&mut self) -> Carried {
        self.flush().await?;
        if !self.ahead_of_now(1).await?.is_empty() {
            return Ok(Ok(Answer::Due(Some(self.context.now))));
        }
        let due = self.store.next(From::Due(Millis::MAX), None, &Scope::All, 1).await?;
        Ok(Ok(Answer::Due(due.first().and_then(|stored| stored.place.due))))
    }

    async fn leases(&mut self) -> Carried {
        self.flush().await?;
        let Settings { is_fair, lease_seconds, .. } = *self.context.settings;
        let flights = self.store.flights().await?.into_iter();
        let leases = flights.filter(|it| is_fair || it.lease_seconds.is_some()).map(|it| Lease {
            attempt: it.attempt,
            started: it.started,
            is_classic: it.lease_seconds.is_none(),
            seconds: it.lease_seconds.map_or(lease_seconds, i64::from),
        });
        Ok(Ok(Answer::Leases(leases.collect())))
    }

    /// A rule changed the record.
    fn changed(&mut self, slot: usize) {
        let record = self.desk.record_mut(slot);
        rules::tidy(record);
        rules::clocks::look(record, &self.context);
        self.singles = None;
        self.desk.changed(slot, &self.context);
    }

    /// The number of a fetcher's name, if it has one.
    fn fetcher(&self, name: &str) -> Option<FetcherId> {
        self.context.fetchers.iter().find(|(_, known)| &***known == name).map(|(id, _)| *id)
    }
}

/// What a batch is going to ask for.
fn outset(batch: &[Operation]) -> Outset {
    use Operation as Op;
    let mut names = Vec::with_capacity(batch.len());
    batch.iter().for_each(|operation| operation.name(&mut names));
    let next = batch.iter().filter(|it| matches!(it, Op::Dispatch { .. })).count();
    let is_of_a_job = |it: &Operation| matches!(it, Op::Dispatch { .. }) || it.attempt().is_some();
    Outset { names, next, is_alone: !batch.iter().all(is_of_a_job) }
}

/// Numbers ascend for ever, and somebody wrote one that has none behind it.
fn used_up(what: &str) -> Rejected {
    Rejected(format!(
        "the database has no number left for {what}: one of the last numbers was written by hand"
    ))
}
