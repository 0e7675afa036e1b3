//! The engine carries out a batch, in the same way for every store: it loads the records that the operations name in
//! one step, applies the rules in turn, and saves what changed in one step. *A reply means it is on disk*:
//! [`apply`](Engine::apply) returns after the commit.
//!
//! Called by the StorageActor, which gathers operations. It decides nothing about a key; [rules] do. An operation that is
//! rejected changes nothing, so a batch has no savepoints and no second try.

mod clock;
mod desk;
mod groups;
mod hand_out;
mod hold_rules;
mod keys;
mod members;
mod notes;
mod outset;
mod questions;
mod relays;
mod retention;
mod routes;
mod runs;
mod sorting;
mod start;

use std::collections::HashMap;
use std::sync::Arc;

use shiftboss_protocol::model::{Key, TASKS_FETCHER};

use crate::attempt::EndedAttempt;
use crate::context::{Context, Settings};
use crate::error::Rejected;
use crate::groups::GroupRules;
use crate::hold_rules::HoldRules;
use crate::members::Members;
use crate::operation::{JobEnd, Operation, Outcome, RelayAnswer};
use crate::place::Turn;
use crate::record::{self, FetcherId, Millis, Record};
use crate::records::{
    Begun, Change, Changes, Edit, Header, KeyId, Name, Outset, Records, StoreResult, Stored,
};
use crate::rules;
use crate::sums::{Oldest, Sums};
use desk::Desk;
use groups::Groups;
use hand_out::Ahead;
pub use members::{Forgetting, Joined, News, Own};
use routes::{RouteAt, Routed};
use sorting::{Sorter, Sorting};

/// Most keys that one operation wakes, or passes over: a request waits for no more.
pub const STEP_KEYS: usize = 250;
/// Most steps of edits before a batch goes on without the rest, so that its requests do not wait longer. Edits of the
/// keys that it names still come first, and it hands nothing out, so that no edit is overtaken by a later event.
const EDIT_STEPS_MAX: usize = 8;

/// The result of an operation that may be rejected; errors of the store itself end the batch.
type Carried<T> = StoreResult<Result<T, Rejected>>;

/// See the module. If one of its functions fails, nothing of its work has happened.
#[derive(Debug)]
pub struct Engine<S> {
    store: S,
    settings: Arc<Settings>,
    /// `None`: the queue has one daemon.
    own: Option<Own>,
    header: Header,
    memo: Memo,
    news: News,
    /// Ends of committed batches, until they are [taken](Self::take_ends).
    ends: Vec<JobEnd>,
    /// How far the clock was set by a step that not all keys have followed yet.
    followed: Millis,
    /// There may be more edits by other programs.
    is_edited: bool,
    /// By which rules all groups were [looked at](Batch::follow_groups) since the start.
    looked_at: Option<GroupRules>,
}

/// A cache from batch to batch; it may be dropped at any time.
#[derive(Debug, Default)]
struct Memo {
    /// Fetchers by name, single tasks among them.
    names: HashMap<Arc<str>, FetcherId>,
    /// The second in which the store was last asked to delete what is too old.
    swept: Option<i64>,
    /// The last key that has followed the clock, if others still have to.
    followed: Option<Stored>,
    /// The last key whose place was [derived anew](Batch::derive_places), if others still have to be.
    derived: Option<Stored>,
    /// Rules that hold many keys, read with the members.
    holds: Arc<HoldRules>,
    carried: Option<hold_rules::Carried>,
    /// Over keys that nothing lists.
    pass: retention::Pass,
    /// For runs being pruned: the reading that is the whole list, and the last key that was checked.
    pruned: HashMap<(FetcherId, i64), (i64, KeyId)>,
    /// The last key at the order's front that, like all before it, has only rows of runs under deletion: all of these
    /// are skipped.
    leaving: Option<Stored>,
    /// How far the order's front was searched for a run that will be deleted.
    walk: Option<runs::Walk>,
    /// The store's members, with this batch's changes. `None`: not read yet.
    members: Option<Members>,
    /// The settings of daemons that share the queue, read with the members.
    settings: Option<Arc<Settings>>,
    /// Fetchers whose tasks some workers take alone. `None`: not read yet.
    routed: Option<Routed>,
    /// Whether all tasks are in their groups. `None`: not read yet.
    sorting: Option<Sorting>,
    sorter: Sorter,
    /// How far keys of a fetcher have their routes.
    route_at: Option<RouteAt>,
    /// A read-only batch found something that must be written.
    must_write: bool,
}

impl Memo {
    /// A key has that turn now; if it comes before keys remembered here, they are no longer the front.
    fn came_into_order(&mut self, turn: Turn, key: &Key) {
        let is_behind = |front: &Stored| {
            let place = front.place.order.map(|turn| (turn, front.record.key.jitter()));
            place.is_some_and(|place| (turn, key.jitter()) <= place)
        };
        if self.leaving.as_ref().is_some_and(is_behind) {
            self.leaving = None;
        }
        if let Some(walk) = &mut self.walk {
            walk.is_lost |= walk.last.as_ref().is_some_and(is_behind);
        }
    }
}

impl<S: Records> Engine<S> {
    pub fn new(store: S, settings: Settings) -> Self {
        let (settings, header) = (Arc::new(settings), Header::default());
        let (memo, news, ends) = (Memo::default(), News::default(), Vec::new());
        let (own, looked_at, followed, is_edited) = (None, None, 0, false);
        Self { store, settings, own, header, memo, news, ends, followed, is_edited, looked_at }
    }

    pub fn is_paused(&self) -> bool {
        self.header.paused
    }

    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    pub fn into_store(self) -> S {
        self.store
    }

    /// Whether there were more edits by other programs than the last batch could carry out; reported once for each
    /// batch.
    pub fn take_edited(&mut self) -> bool {
        std::mem::take(&mut self.is_edited)
    }

    pub fn take_ends(&mut self) -> Vec<JobEnd> {
        std::mem::take(&mut self.ends)
    }

    /// Carries out a batch in order, as one transaction; each operation is answered in its place.
    pub async fn apply(
        &mut self,
        now: Millis,
        batch: Vec<Operation>,
    ) -> StoreResult<Vec<Result<Outcome, Rejected>>> {
        let mut outset = outset::of(&batch);
        outset.is_alone |= self.must_route(&batch);
        // Edits by other programs come first, a step at a time, so that this batch sees them; if there are very many,
        // only some.
        let mut steps = 0;
        loop {
            let begun = self.begin(&outset).await?;
            if begun.is_edited {
                self.store.roll_back().await;
                outset.only_reads = false;
                continue;
            }
            let now = begun.now.unwrap_or(now);
            self.is_edited = steps >= EDIT_STEPS_MAX;
            let goes_on = outset.only_reads || self.is_edited;
            let edits = if goes_on { Vec::new() } else { self.edits().await? };
            if !edits.is_empty() {
                self.in_batch(now, async |it| it.edit(edits).await).await?;
                steps += 1;
                continue;
            }
            if !outset.only_reads {
                return self.in_batch(now, async |it| it.carry_out(batch, &outset).await).await;
            }
            let asked = batch.clone();
            let answers = self.in_batch(now, async |it| it.carry_out(asked, &outset).await).await?;
            if !std::mem::take(&mut self.memo.must_write) {
                return Ok(answers);
            }
            outset.only_reads = false;
        }
    }

    /// Carries out what other programs wrote, as one transaction; each is answered in its place.
    pub async fn edit(
        &mut self,
        now: Millis,
        edits: Vec<Edit>,
    ) -> StoreResult<Vec<Result<(), Rejected>>> {
        self.alone(now, async |it| it.edit(edits).await).await
    }

    async fn alone<T>(
        &mut self,
        now: Millis,
        work: impl AsyncFnOnce(&mut Batch<'_, S>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let begun =
            self.begin(&Outset { is_alone: true, counts: true, ..Outset::default() }).await?;
        self.in_batch(begun.now.unwrap_or(now), work).await
    }

    async fn begin(&mut self, outset: &Outset) -> StoreResult<Begun> {
        let begun = self.store.begin(outset).await;
        let mut begun = self.or_roll_back(begun).await?;
        if let Some(header) = begun.header.take() {
            self.header = header;
            self.memo.names.clear();
        }
        if let Some(counts) = begun.counts.take() {
            self.header.counts = counts;
        }
        if begun.has_changed {
            (self.memo.members, self.memo.settings, self.memo.leaving) = (None, None, None);
            (self.memo.routed, self.memo.sorting) = (None, None);
        }
        Ok(begun)
    }

    async fn edits(&mut self) -> StoreResult<Vec<Edit>> {
        let edits = self.store.edits(STEP_KEYS).await;
        self.or_roll_back(edits).await
    }

    async fn or_roll_back<T>(&mut self, outcome: StoreResult<T>) -> StoreResult<T> {
        if outcome.is_err() {
            self.store.roll_back().await;
            self.memo = Memo::default();
        }
        outcome
    }

    /// Does `work` in the open transaction, which is then committed, or rolled back as a whole.
    async fn in_batch<T>(
        &mut self,
        now: Millis,
        work: impl AsyncFnOnce(&mut Batch<'_, S>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let looked_at = self.looked_at.clone();
        match Batch::new(self, now).work(work).await {
            Ok((done, ends, news)) => {
                self.ends.extend(ends);
                self.news.add(news);
                Ok(done)
            }
            Err(error) => {
                self.store.roll_back().await;
                self.looked_at = looked_at;
                // The store returns the header again with the next begin.
                self.memo = Memo::default();
                Err(error)
            }
        }
    }
}

struct Batch<'a, S> {
    store: &'a mut S,
    header: &'a mut Header,
    memo: &'a mut Memo,
    /// The daemon's own.
    settings: &'a mut Arc<Settings>,
    context: Context,
    desk: Desk,
    own: Option<&'a Own>,
    /// The member that is the requester; `None`: the daemon of a file.
    asker: Option<Arc<str>>,
    news: News,
    only_reads: bool,
    /// No other daemon's batch runs at the same time.
    is_alone: bool,
    looked_at: &'a mut Option<GroupRules>,
    /// There are edits by other programs that were not carried out yet.
    is_edited: bool,
    /// The next keys of the store, until something is written.
    ahead: Ahead,
    groups: Groups,
    ended: Vec<EndedAttempt>,
    ends: Vec<JobEnd>,
    sums: Sums,
    /// The number of single tasks, as long as only their own rules have changed it since it was counted.
    singles: Option<u64>,
    in_vain: usize,
}

impl<'a, S: Records> Batch<'a, S> {
    fn new(engine: &'a mut Engine<S>, now: Millis) -> Self {
        let Engine { store, settings, own, header, memo, is_edited, looked_at, .. } = engine;
        let mut context = header.context(memo.settings.as_ref().unwrap_or(settings), now);
        context.holds = memo.holds.clone();
        if memo.names.is_empty() {
            let names = context.fetchers.iter().map(|(id, name)| (name.clone(), *id));
            memo.names = names.chain([(TASKS_FETCHER.into(), FetcherId::TASKS)]).collect();
        }
        Self {
            store,
            header,
            memo,
            settings,
            context,
            desk: Desk::default(),
            own: own.as_ref(),
            asker: own.as_ref().map(|own| own.name.clone()),
            news: News::default(),
            only_reads: false,
            is_alone: false,
            is_edited: *is_edited,
            looked_at,
            ahead: Ahead::default(),
            groups: Groups::default(),
            ended: Vec::new(),
            ends: Vec::new(),
            sums: Sums::default(),
            singles: None,
            in_vain: 0,
        }
    }

    /// Does `work`, writes and commits; returns the result, and which attempts ended.
    async fn work<T>(
        mut self,
        work: impl AsyncFnOnce(&mut Self) -> StoreResult<T>,
    ) -> StoreResult<(T, Vec<JobEnd>, News)> {
        self.read_members().await?;
        self.read_routed().await?;
        self.read_sorting().await?;
        let done = work(&mut self).await?;
        self.flush().await?;
        self.store.commit().await?;
        Ok((done, self.ends, self.news))
    }

    async fn carry_out(
        &mut self,
        batch: Vec<Operation>,
        outset: &Outset,
    ) -> StoreResult<Vec<Result<Outcome, Rejected>>> {
        (self.only_reads, self.is_alone) = (outset.only_reads, outset.is_alone);
        self.ahead = Ahead::of(outset);
        self.desk.reserve(outset.names.len() + self.ahead.count);
        self.bring(&outset.names).await?;
        if self.is_edited {
            let edits = self.store.edits_of(&self.desk.keys()).await?;
            self.edit(edits).await?;
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        for operation in batch {
            outcomes.push(self.one(operation).await?);
        }
        Ok(outcomes)
    }

    async fn one(&mut self, operation: Operation) -> Carried<Outcome> {
        match operation {
            Operation::Relayed(it) => Ok(Ok(Outcome::Relayed(self.relayed(it).await?))),
            of_asker => self.of_asker(of_asker).await,
        }
    }

    async fn of_asker(&mut self, operation: Operation) -> Carried<Outcome> {
        use {Operation as Op, Outcome as Out};
        Ok(match operation {
            Op::Dispatch(it) => self.dispatch(it).await?.map(Out::Dispatch),
            Op::Complete(it) => Ok(Out::Complete(self.complete(it).await?)),
            Op::CompleteAttempt(it) => Ok(Out::CompleteAttempt(self.complete_attempt(it).await?)),
            Op::Release(it) => Ok(Out::Release(self.release(it.0).await?)),
            Op::Heartbeat(it) => Ok(Out::Heartbeat(self.heartbeat(it.0).await?)),
            Op::Expire(it) => Ok(Out::Expire(self.expire(it.0).await?)),
            Op::Undo(it) => Ok(Out::Undo(self.undo(it).await?)),
            Op::Requeue(it) => Ok(Out::Requeue(self.requeue(it.0).await?)),
            Op::Stop(it) => Ok(Out::Stop(self.stop(it.0).await?)),
            Op::Retry(it) => Ok(Out::Retry(self.retry(it).await?)),
            Op::Hold(it) => Ok(Out::Hold(self.hold(it).await?)),
            Op::AskFor(it) => Ok(Out::AskFor(self.ask_for(it).await?)),
            Op::HoldGroup(it) => Ok(Out::HoldGroup(self.hold_group(it).await?)),
            Op::UnholdGroup(it) => Ok(Out::UnholdGroup(self.unhold_group(&it.0).await?)),
            Op::SetGroups(it) => Ok(Out::SetGroups(self.set_groups(it).await?)),
            Op::Unhold(it) => Ok(Out::Unhold(self.unhold(it.0).await?)),
            Op::HoldAll(it) => Ok(Out::HoldAll(self.hold_all(it).await?)),
            Op::UnholdAll(it) => Ok(Out::UnholdAll(self.unhold_all(it.0).await?)),
            Op::Bump(it) => Ok(Out::Bump(self.bump(it).await?)),
            Op::Forget(it) => Ok(Out::Forget(self.forget(it.0).await?)),
            Op::AddTask(it) => self.add_task(it.task, it.id).await?.map(Out::AddTask),
            Op::CancelTasks(it) => Ok(Out::CancelTasks(self.cancel(it.0).await?)),
            Op::RegisterRun(it) => self.register(it.0).map(Out::RegisterRun),
            Op::AddRows(it) => self.add_rows(it.0).await?.map(Out::AddRows),
            Op::Prune(it) => Ok(Out::Prune(self.prune(it).await?)),
            Op::BeginDeletion(it) => Ok(Out::BeginDeletion(self.begin_deletion(&it.0).await?)),
            Op::DeleteRuns(it) => Ok(Out::DeleteRuns(self.delete_runs(it).await?)),
            Op::SetPaused(it) => Ok(Out::SetPaused(self.pause(it.0).await?)),
            Op::Drain(_) => Ok(Out::Drain(self.begin_drain().await?)),
            Op::EndHolds(_) => Ok(Out::EndHolds(self.wake().await?)),
            // The batch got the lock, and everything else that a change needs, when it began.
            Op::Probe(_) => Ok(Out::Probe(())),
            Op::Runs(_) => Ok(Out::Runs(self.runs())),
            Op::Leases(_) => Ok(Out::Leases(self.leases().await?)),
            Op::Stops(_) => Ok(Out::Stops(self.stops().await?)),
            Op::HasWork(_) => Ok(Out::HasWork(self.has_work().await?)),
            Op::NextHoldEnd(_) => Ok(Out::NextHoldEnd(self.next_hold_end().await?)),
            Op::NextOpening(_) => Ok(Out::NextOpening(self.next_opening().await?)),
            Op::CountInFlight(_) => Ok(Out::CountInFlight(self.count_in_flight().await?)),
            Op::WhyIdle(it) => Ok(Out::WhyIdle(self.why_idle(it.0).await?)),
            Op::RejectFile(it) => Ok(Out::RejectFile(self.reject_file(it).await?)),
            Op::ForgetRejected(it) => Ok(Out::ForgetRejected(self.forget_rejected(it).await?)),
            Op::NoteInput(it) => Ok(Out::NoteInput(self.note_input(it).await?)),
            Op::NoteFetcher(it) => Ok(Out::NoteFetcher(self.note_fetcher(it).await?)),
            Op::ForgetFetcher(it) => Ok(Out::ForgetFetcher(self.forget_fetcher(it).await?)),
            Op::FetcherRecords(_) => Ok(Out::FetcherRecords(self.fetcher_records().await?)),
            Op::Installation(_) => Ok(Out::Installation(self.installation().await?)),
            Op::Place(_) => Ok(Out::Place(self.store.place().await?)),
            Op::JoinRelay(it) => self.join_relay(it).await?.map(Out::JoinRelay),
            // A relay's batch within another has no requester.
            Op::Relayed(_) => Ok(Out::Relayed(RelayAnswer::Lost)),
            Op::AddRelayedRows(it) => Ok(Out::AddRelayedRows(self.add_relayed_rows(it).await?)),
            Op::LoseRelay(it) => Ok(Out::LoseRelay(self.lose_relay(it).await?)),
            Op::Relays(_) => Ok(Out::Relays(self.relays().await?)),
        })
    }

    /// Writes the changes so far, for questions that the store answers; records are then loaded again.
    async fn flush(&mut self) -> StoreResult<()> {
        self.ahead.clear();
        self.flush_members().await?;
        self.settle_groups().await?;
        if self.only_reads {
            self.desk = Desk::default();
            self.groups = Groups::default();
            return Ok(());
        }
        self.note_rules().await?;
        self.header.last_attempt = self.context.last_attempt.0;
        self.header.last_bump = self.context.last_bump;
        let tally = self.desk.tally();
        self.header.counts.merge(&tally);
        let (runs, counts) = (self.header.runs.take_changed(), tally.0.into_keys().collect());
        let ended = std::mem::take(&mut self.ended);
        let records = self.desk.clear(&ended);
        let groups = self.take_groups();
        self.news.has_work |= records.iter().any(Change::brings_work);
        let mut sums = std::mem::take(&mut self.sums);
        let oldest = Oldest::at(self.context.now, self.context.settings.ids_kept);
        sums.tidy(oldest);
        let minute = self.context.now.div_euclid(60_000);
        let second = record::seconds(self.context.now);
        let is_due = !records.is_empty() && self.memo.swept.replace(second) != Some(second);
        let oldest = is_due.then_some(oldest);
        let header = &*self.header;
        self.store
            .save(Changes { records, ended, groups, header, runs, counts, sums, minute, oldest })
            .await
    }

    /// Puts the records of these keys on the desk; unknown keys, too, so that they are not looked for again.
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

    /// Applies a rule to a record.
    fn change<T>(&mut self, slot: usize, rule: impl FnOnce(&mut Record, &mut Context) -> T) -> T {
        let came_to = rule(self.desk.record_mut(slot), &mut self.context);
        self.changed(slot);
        came_to
    }

    fn changed(&mut self, slot: usize) {
        let record = self.desk.record_mut(slot);
        rules::tidy(record);
        rules::clocks::look(record, &self.context);
        self.singles = None;
        let (step, turn) = self.desk.changed(slot, &self.context);
        self.groups.steps.extend(step);
        if let Some(turn) = turn {
            self.memo.came_into_order(turn, &self.desk.record(slot).key);
        }
    }

    fn fetcher(&self, name: &str) -> Option<FetcherId> {
        self.memo.names.get(name).copied()
    }
}

/// Numbers only grow, and the highest possible one was written by hand.
fn used_up(what: &str) -> Rejected {
    Rejected(format!(
        "the database has no number left for {what}: one of the last numbers was written by hand"
    ))
}
