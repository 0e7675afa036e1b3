//! What members own: fetchers, jobs whose leases they keep, notes. On a queue that daemons share, each engine acts for
//! one; in a file, the daemon owns what no relay has. Also how members come and go. The store decides who is alive, and
//! who may write.
//!
//! [`Members`] says who owns what; it is read once, and written with the batch.

use std::sync::Arc;
use std::time::Duration;

use humantime::format_duration;

use super::{Batch, Engine, STEP_KEYS};
use crate::attempt::Outcome;
use crate::context::Settings;
use crate::documents::{Gone, MEMBER, Member, RELAY, RULES};
use crate::file_identity::DirectoryIdentity;
use crate::members::{self, Members};
use crate::record::{FetcherId, Flight, Millis};
use crate::records::{InFlight, Name, Records, RunState, Stale, StoreResult};
use shiftboss_protocol::model::{Attempt, UnixSeconds};

/// The daemon that an engine acts for, of several that share a queue.
#[derive(Debug, Clone)]
pub struct Own {
    /// The name of its [document](MEMBER).
    pub name: Arc<str>,
    /// How long another daemon must have been gone, or without a list of a fetcher, before this one takes that fetcher
    /// over.
    pub takeover: i64,
}

#[derive(Debug, Clone, Default)]
pub struct Joined {
    /// The last daemon of its name was stopped cleanly, or there was none.
    pub was_clean: bool,
    pub input_directory: Option<DirectoryIdentity>,
}

/// The result of one step of forgetting a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgetting {
    More,
    /// Everything known of it is gone, with this many lists and fetchers.
    Gone {
        lists: u64,
        fetchers: u64,
    },
    Unknown,
    /// It is alive, or not yet taken for dead.
    Lives,
}

/// Effects of batches that are not in their answers.
#[derive(Debug, Default)]
pub struct News {
    /// Keys wait that did not before: other daemons may have work.
    pub has_work: bool,
    /// A job is to stop, whose worker another daemon may serve.
    pub has_stop: bool,
    /// This daemon now keeps a lease that was another member's.
    pub has_lease: bool,
    /// Fetchers that were taken over, with their former owners.
    pub taken: Vec<(Arc<str>, String)>,
}

impl News {
    pub(super) fn add(&mut self, more: Self) {
        self.has_work |= more.has_work;
        self.has_stop |= more.has_stop;
        self.has_lease |= more.has_lease;
        self.taken.extend(more.taken);
    }
}

impl<S: Records> Engine<S> {
    #[must_use]
    pub fn acting_for(self, own: Own) -> Self {
        Self { own: Some(own), ..self }
    }

    /// The effects of batches since the last call.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// The daemon that this engine acts for joins; `is_again`: its process had joined before. `unheard`: attempts of calls whose answers were lost;
    /// they are undone.
    pub async fn join(
        &mut self,
        now: Millis,
        process: &str,
        is_again: bool,
        unheard: &[Attempt],
    ) -> StoreResult<Joined> {
        let settings = self.settings.clone();
        self.alone(now, async |batch| batch.join(process, is_again, &settings, unheard).await).await
    }

    /// Notes, for `status`, that this member found the queue in a state older than what it had written.
    pub async fn note_went_back(&mut self, now: Millis) -> StoreResult<()> {
        self.alone(now, async |batch| {
            let (own, now) = (batch.asker.clone(), batch.context.seconds());
            if let Some(member) = own.and_then(|own| batch.known_members().get_mut(&own)) {
                member.went_back = Some(now);
            }
            Ok(())
        })
        .await
    }

    /// Takes over the jobs of a member that is gone; returns their number.
    pub async fn adopt(
        &mut self,
        now: Millis,
        member: &Arc<str>,
        gone: Gone,
        since: UnixSeconds,
    ) -> StoreResult<u64> {
        self.alone(now, async |batch| batch.lose(member, gone, since).await).await
    }

    /// Requeues the jobs of a member that is gone, because no daemon adopts them; returns their number.
    pub async fn give_back(
        &mut self,
        now: Millis,
        member: &Arc<str>,
        gone: Gone,
        since: UnixSeconds,
    ) -> StoreResult<u64> {
        self.alone(now, async |batch| {
            let jobs = batch.give_back(member).await?;
            batch.known_members().lose(member, gone, since);
            Ok(jobs)
        })
        .await
    }

    /// Forgets a member that is gone for good, in steps of a bounded number of its lists' rows: then its fetchers are
    /// free. Its jobs that are out wait again; in a file, the daemon keeps their leases.
    pub async fn forget_member(
        &mut self,
        now: Millis,
        member: &Arc<str>,
    ) -> StoreResult<Forgetting> {
        self.alone(now, async |batch| batch.forget_member(member).await).await
    }
}

impl<S: Records> Batch<'_, S> {
    pub(super) async fn read_members(&mut self) -> StoreResult<()> {
        if self.memo.members.is_none() {
            let mut all = self.store.documents(RELAY.name()).await?;
            if self.own.is_some() {
                all.extend(self.store.documents(MEMBER.name()).await?);
            }
            self.memo.members = Some(Members::read(&all));
            self.read_hold_rules().await?;
            if self.own.is_some() {
                let rules = self.document(&RULES, RULES.name()).await?;
                let own = &self.context.settings;
                let settings = rules.map_or_else(|| own.clone(), |it| Arc::new(it.settings(own)));
                self.memo.settings = Some(settings.clone());
                self.context.settings = settings;
            }
        }
        Ok(())
    }

    pub(super) fn known_members(&mut self) -> &mut Members {
        self.memo.members.get_or_insert_default()
    }

    /// The requesting member's document, to change it. `None`: the requester is the daemon of a file.
    pub(super) fn asking_member(&mut self) -> Option<&mut Member> {
        let asker = self.asker.clone()?;
        self.known_members().get_mut(&asker)
    }

    /// Writes the documents that have changed.
    pub(super) async fn flush_members(&mut self) -> StoreResult<()> {
        for (name, text) in self.known_members().take_changes() {
            self.store.note(name, text).await?;
        }
        Ok(())
    }

    async fn join(
        &mut self,
        process: &str,
        is_again: bool,
        settings: &Settings,
        unheard: &[Attempt],
    ) -> StoreResult<Joined> {
        let Some(own) = self.asker.clone() else { return Ok(Joined::default()) };
        let mut rules = self.document(&RULES, RULES.name()).await?.unwrap_or_default();
        // Who only comes back brings no rules: others may have been reloaded meanwhile.
        if !is_again {
            rules = rules.joined(&own, settings);
            self.note(&RULES, RULES.name().to_owned(), &rules).await?;
        }
        self.use_settings(rules.settings(settings)).await?;
        let now = self.context.seconds();
        let known = self.known_members().get(&own);
        let was_clean = known.is_none_or(|it| it.gone == Some(Gone::Stopped));
        let input = known.and_then(|it| it.input.identity);
        self.known_members().join(&own, process, 0, now);
        for attempt in unheard {
            self.undo_unheard(*attempt).await?;
        }
        Ok(Joined { was_clean, input_directory: input })
    }

    /// Undoes it even if another daemon has adopted it meanwhile. But a relay's is left, because the relay asks again
    /// and gets the first answer.
    async fn undo_unheard(&mut self, attempt: Attempt) -> StoreResult<()> {
        let Some(slot) = self.slot_of_flight(attempt).await? else { return Ok(()) };
        let record = self.desk.record(slot);
        let owner = record.flight.as_ref().and_then(|it| it.owner.as_deref());
        if owner.is_some_and(members::is_relay) {
            return Ok(());
        }
        self.take_back(slot, Outcome::Undone);
        Ok(())
    }

    /// This daemon hands nothing out, though others do.
    pub(super) fn is_draining(&self) -> bool {
        let own = self.own.filter(|own| self.asker.as_ref() == Some(&own.name));
        let members = own.and_then(|own| self.memo.members.as_ref()?.get(&own.name));
        members.is_some_and(|member| member.drains_since.is_some())
    }

    /// False if the queue has one daemon: then the queue is paused instead.
    pub(super) fn drain(&mut self, drains: bool) -> bool {
        let now = self.context.seconds();
        let Some(own) = self.own.map(|own| own.name.clone()) else { return false };
        let Some(member) = self.known_members().get_mut(&own) else { return false };
        member.drains_since = drains.then(|| member.drains_since.unwrap_or(now));
        true
    }

    /// Takes a fetcher that is the requester's own, or free. Otherwise returns whose it is, as a text for people.
    pub(super) fn take_fetcher(&mut self, fetcher: &Arc<str>) -> Option<String> {
        let asker = self.asker.clone();
        let owner = self.known_members().owner(fetcher).cloned();
        if owner == asker {
            self.known_members().leave(fetcher, None);
            return None;
        }
        let has_runs = self.has_runs(fetcher);
        if has_runs && self.own.is_none() || !self.is_free(owner.as_ref(), fetcher) {
            return Some(self.elsewhere(owner.as_deref(), fetcher));
        }
        self.known_members().give(fetcher, asker.as_ref());
        if has_runs && let Some(owner) = owner {
            self.news.taken.push((fetcher.clone(), members::shown(&owner)));
        }
        // Lists that other daemons have read are read anew.
        for run in self.runs_of(fetcher) {
            let state = self.header.runs.change(run);
            let RunState { since, deleting, reading, .. } = *state;
            *state =
                RunState { since, deleting, reading, stale: Stale::Yes, ..RunState::default() };
        }
        None
    }

    /// Whether another member's fetcher may be taken: its owner has been gone, or without a list of it, for as long as
    /// this daemon waits.
    fn is_free(&self, owner: Option<&Arc<str>>, fetcher: &str) -> bool {
        let (Some(own), Some(members)) = (self.own, &self.memo.members) else { return true };
        let before = self.context.seconds().saturating_sub(own.takeover);
        owner.and_then(|owner| members.get(owner)).is_none_or(|owner| {
            let since = [owner.left.get(fetcher).copied(), owner.gone_since];
            since.into_iter().flatten().any(|since| since <= before)
        })
    }

    fn elsewhere(&self, owner: Option<&str>, fetcher: &str) -> String {
        let whose = owner.map_or_else(|| "the daemon".to_owned(), members::shown);
        match self.own {
            None => format!(
                "the fetcher {fetcher} is {whose}'s: remove its lists there, or give this one another name"
            ),
            Some(own) => format!(
                "the fetcher {fetcher} belongs to {whose}; it is taken over (--takeover) when that one has been gone, or without a \
                 list of it, for {}",
                format_duration(Duration::from_secs(own.takeover.unsigned_abs()))
            ),
        }
    }

    pub(super) fn runs_of(&self, fetcher: &str) -> Vec<(FetcherId, i64)> {
        let id = self.fetcher(fetcher);
        let runs = id.map(|id| self.header.runs.range((id, i64::MIN)..=(id, i64::MAX)));
        runs.into_iter().flatten().map(|(run, _)| *run).collect()
    }

    fn has_runs(&self, fetcher: &str) -> bool {
        !self.runs_of(fetcher).is_empty()
    }

    /// A run of the fetcher is gone: if it was the last one, other daemons may take the fetcher after a while.
    pub(super) fn leave_fetcher(&mut self, fetcher: FetcherId) {
        let name = self.context.fetcher(fetcher);
        if self.own.is_some() && !self.has_runs(&name) {
            let now = self.context.seconds();
            self.known_members().leave(&name, Some(now));
        }
    }

    pub(super) fn is_own(&self, fetcher: &str) -> bool {
        let owner = self.memo.members.as_ref().and_then(|members| members.owner(fetcher));
        owner == self.asker.as_ref()
    }

    /// Whether the requester keeps the lease of the job that is out.
    pub(super) fn sees_to(&self, slot: usize) -> bool {
        let flight = self.desk.record(slot).flight.as_ref();
        let is_its = |it: &Flight| self.has_job(it.owner.as_ref(), it.holder.is_none());
        flight.is_some_and(is_its)
    }

    /// Whether the requester keeps the lease of a job with this owner. A classic job is not adopted, because its worker
    /// may still end it at its own daemon: while that daemon is gone, every daemon watches its lease.
    pub(super) fn has_job(&self, owner: Option<&Arc<str>>, is_classic: bool) -> bool {
        let is_gone = |owner: &Arc<str>| {
            let member = self.memo.members.as_ref().and_then(|members| members.get(owner));
            member.is_none_or(|member| member.gone.is_some())
        };
        let is_own = self.own.is_some_and(|own| self.asker.as_ref() == Some(&own.name));
        owner == self.asker.as_ref() || is_own && is_classic && owner.is_none_or(is_gone)
    }

    /// The requester has handed out a record's job, or heard from its worker, and keeps its lease from now on. For a
    /// relay's classic worker, the daemon does.
    pub(super) fn see_to(&mut self, slot: usize) {
        let asker = self.asker.clone();
        let own = self.own.map(|own| own.name.clone());
        let Some(flight) = &mut self.desk.record_mut(slot).flight else { return };
        flight.owner = if flight.holder.is_some() { asker } else { own };
    }

    async fn jobs_of(&mut self, member: &str) -> StoreResult<Vec<usize>> {
        self.flush().await?;
        let flights = self.store.flights().await?;
        let is_its = |it: &&InFlight| it.owner.as_deref() == Some(member);
        let of_it = flights.iter().filter(is_its).filter(|it| it.lease_seconds.is_some());
        let names: Vec<Name> = of_it.map(|it| Name::Attempt(it.attempt)).collect();
        self.bring(&names).await?;
        let slots = names.iter().filter_map(|name| match name {
            Name::Attempt(attempt) => self.desk.slot_of_attempt(*attempt),
            _ => None,
        });
        let is_its = |slot: &usize| {
            let flight = self.desk.record(*slot).flight.as_ref();
            flight.is_some_and(|it| it.owner.as_deref() == Some(member))
        };
        Ok(slots.filter(is_its).collect())
    }

    /// A member no longer acts, and its jobs become this daemon's; returns their number.
    pub(super) async fn lose(
        &mut self,
        member: &Arc<str>,
        gone: Gone,
        since: UnixSeconds,
    ) -> StoreResult<u64> {
        let jobs = self.jobs_of(member).await?;
        for slot in &jobs {
            self.see_to(*slot);
            self.changed(*slot);
        }
        self.known_members().lose(member, gone, since);
        Ok(jobs.len() as u64)
    }

    async fn give_back(&mut self, member: &Arc<str>) -> StoreResult<u64> {
        let jobs = self.jobs_of(member).await?;
        for slot in &jobs {
            self.take_back(*slot, Outcome::Released);
        }
        Ok(jobs.len() as u64)
    }

    async fn forget_member(&mut self, member: &Arc<str>) -> StoreResult<Forgetting> {
        let fetchers = match self.known_members().get(member) {
            None => return Ok(Forgetting::Unknown),
            Some(member) if member.gone.is_none() => return Ok(Forgetting::Lives),
            Some(member) => member.fetchers.clone(),
        };
        let runs: Vec<_> = fetchers.iter().flat_map(|name| self.runs_of(name)).collect();
        let mut left = STEP_KEYS;
        for run in &runs {
            left = left.saturating_sub(self.delete_rows(*run, left).await?);
            if left == 0 {
                return Ok(Forgetting::More);
            }
        }
        runs.iter().for_each(|run| self.remove_run(*run));
        self.forget_lanes(member).await?;
        self.forget_notes(member).await?;
        match self.own {
            // They belong to the daemon of a file.
            None => self.lose(member, Gone::Stopped, 0).await?,
            Some(_) => self.give_back(member).await?,
        };
        self.known_members().forget(member);
        Ok(Forgetting::Gone { lists: runs.len() as u64, fetchers: fetchers.len() as u64 })
    }
}
