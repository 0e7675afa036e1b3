//! What a batch reads: with its begin, ahead of time, everything that it will ask for; later whatever else it asks for.
//!
//! Used by the port alone. The engine decides which key is handed out.

use std::collections::HashMap;

use shiftboss_queue::place::Line;
use shiftboss_queue::record::Task;
use shiftboss_queue::records::{From, KeyId, Name, Outset, Payload, StoreResult, Stored};

use super::PostgresRecords;
use tokio_postgres::Row;

use crate::error::classify;
use crate::front::At;
use crate::load::{self, Found};
use crate::wire::{Ask, ask, parts, union};

/// What was read with the begin of a batch, until something is written.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) names: Option<(Vec<Name>, Vec<Found>)>,
    /// The first ones of the order and of the lane.
    pub(super) next: Vec<(From, Vec<Found>)>,
    /// How many of them were asked for.
    pub(super) count: usize,
    pub(super) payloads: HashMap<(KeyId, Task), Payload>,
}

impl Ahead {
    /// The query for everything that a batch says it will ask for.
    pub(super) fn ask(outset: &Outset, front: At) -> Option<Ask> {
        let count = i64::try_from(outset.next).unwrap_or(i64::MAX);
        let look = |from: &From| load::next(*from, None, front, count, false);
        let named = (!outset.names.is_empty()).then(|| load::named(&outset.names));
        let asks: Vec<Ask> = named.into_iter().chain(looks(outset).iter().map(look)).collect();
        (!asks.is_empty()).then(|| union(asks))
    }

    /// Reads the answer to that.
    pub(super) fn of(outset: &Outset, rows: Vec<Row>) -> StoreResult<Self> {
        let names = outset.names.clone();
        let mut it = Self { count: outset.next, ..Self::default() };
        let mut parts = parts(rows, usize::from(!names.is_empty()) + looks(outset).len())?;
        for (from, rows) in
            looks(outset).iter().zip(parts.split_off(usize::from(!names.is_empty())))
        {
            it.next.push((*from, load::found(&rows)?));
        }
        it.names =
            parts.first().map(|rows| load::found(rows)).transpose()?.map(|found| (names, found));
        Ok(it)
    }
}

fn looks(outset: &Outset) -> &'static [From] {
    if outset.next > 0 { &[From::Line(Line::ORDER), From::Line(Line::LANE)] } else { &[] }
}

#[derive(Default)]
struct Known {
    all: Vec<Stored>,
    places: HashMap<Name, usize>,
}

impl Known {
    /// `others`: names of attempts that ended, and of tasks.
    fn add(&mut self, more: Vec<Stored>, others: &[(Name, KeyId)]) {
        for stored in more {
            let flight = stored.record.flight.as_ref().map(|it| Name::Attempt(it.attempt));
            let others = others.iter().filter(|(_, id)| *id == stored.id).map(|it| it.0.clone());
            let names = [Name::Key(stored.record.key.clone())].into_iter().chain(flight);
            self.places.extend(names.chain(others).map(|name| (name, self.all.len())));
            self.all.push(stored);
        }
    }

    fn find(&self, name: &Name) -> Option<&Stored> {
        self.places.get(name).map(|at| &self.all[*at])
    }
}

/// A batch steps over this many times as many keys as one of a file: its round trips and its commit cost as much as
/// thousands of keys.
const STEPS: usize = 4;

impl PostgresRecords {
    /// Returns the records; one that is not whole is read again, now that it is locked.
    async fn whole(&mut self, found: Vec<Found>) -> StoreResult<Vec<Stored>> {
        let torn = found.iter().filter(|it| !it.is_whole).map(|it| it.stored.id.0);
        let torn: Vec<i64> = torn.collect();
        let mut all: Vec<_> = found.into_iter().filter(|it| it.is_whole).collect();
        if !torn.is_empty() {
            let rows = self.ask_one(ask!(load::BY_IDS, torn)).await?;
            all.extend(load::found(&rows)?);
        }
        Ok(all.into_iter().map(|it| it.stored).collect())
    }

    pub(super) async fn load_now(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = match self.ahead.names.take() {
            Some((asked, found)) if asked == names => found,
            _ => {
                self.numbers.stale();
                load::found(&self.ask_one(load::named(names)).await?)?
            }
        };
        let mut known = Known::default();
        known.add(self.whole(found).await?, &[]);
        let is_other = |name: &&Name| !matches!(name, Name::Key(_)) && known.find(name).is_none();
        let others: Vec<&Name> = names.iter().filter(is_other).collect();
        if !others.is_empty() {
            self.numbers.stale();
            let rows = self.ask_one(load::of_others(&others)).await?;
            let others: Vec<_> = rows.iter().map(load::other).collect::<StoreResult<_>>()?;
            let ids: Vec<i64> = others.iter().map(|(_, id)| id.0).collect();
            let found = load::found(&self.ask_one(ask!(load::BY_IDS, ids)).await?)?;
            known.add(self.whole(found).await?, &others);
        }
        Ok(names.iter().map(|name| known.find(name).cloned()).collect())
    }

    pub(super) async fn next_now(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        let is_order = from == From::Line(Line::ORDER);
        let is_ahead = behind.is_none() && self.ahead.count > 0;
        let at = self.ahead.next.iter().position(|(it, _)| is_ahead && *it == from);
        let mut ahead = at.map(|at| (self.ahead.next.swap_remove(at).1, self.ahead.count));
        let (mut all, mut last) = (Vec::new(), behind.cloned());
        let mut waits = self.is_alone;
        loop {
            let (found, asked) = match ahead.take() {
                Some(ahead) => ahead,
                None => {
                    self.numbers.stale();
                    let asked = i64::try_from(count - all.len()).unwrap_or(i64::MAX);
                    let front = self.front.first();
                    let ask = load::next(from, last.as_ref(), front, asked, waits);
                    (load::found(&self.ask_one(ask).await?)?, count - all.len())
                }
            };
            let is_last = found.len() < asked;
            last = found.last().map(|it| it.stored.clone()).or(last);
            all.extend(self.usable(found, from));
            if !is_last && all.len() < count {
                continue;
            }
            if is_order && is_last && self.front.forget() && behind.is_none() {
                (all, last) = (Vec::new(), None);
                continue;
            }
            // If an administrator, or a daemon that may roll back, has locked keys, that is no reason to answer that
            // there is no work. A batch that holds free keys does not wait for others, so that no two wait for each
            // other.
            if all.is_empty() && !waits && !self.has_next {
                waits = self.is_any(from, behind).await?;
                if waits {
                    last = behind.cloned();
                    continue;
                }
            }
            self.has_next |= !all.is_empty();
            all.truncate(count);
            return Ok(all);
        }
    }

    /// One that is not whole has just been taken by another daemon.
    fn usable(&mut self, found: Vec<Found>, from: From) -> Vec<Stored> {
        let mut usable = Vec::with_capacity(found.len());
        for it in found.into_iter().filter(|it| it.is_whole) {
            let id = it.stored.id;
            let payloads = it.payloads.into_iter().map(|(task, text)| ((id, task), text));
            self.ahead.payloads.extend(payloads);
            usable.push(it.stored);
        }
        if from == From::Line(Line::ORDER) {
            self.front.found(usable.iter().map(|it| load::place(Some(it))));
        }
        usable
    }

    /// Searches the front keys that have only rows of lists under deletion; returns whether there may be more of them.
    /// Each daemon does this by itself, without knowing how far the others are: so this is not done before a list is
    /// marked.
    pub(super) async fn leaving_now(&mut self, count: usize) -> StoreResult<bool> {
        let count = i64::try_from(count.saturating_mul(STEPS)).unwrap_or(i64::MAX);
        let rows = self.ask_one(load::leaving(self.front.first(), count)).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let (last, is_more) = load::last_leaving(row, count)?;
        let is_farther = self.front.goes(last);
        let goes = |found: &Found| load::place(Some(&found.stored)) <= last;
        self.ahead.next.retain(|(from, found)| {
            *from != From::Line(Line::ORDER) || !found.first().is_some_and(goes)
        });
        Ok(is_farther && is_more)
    }

    /// Whether there is any key after this one to hand out, locked or not.
    async fn is_any(&mut self, from: From, behind: Option<&Stored>) -> StoreResult<bool> {
        let Some(ask) = load::any(from, behind) else { return Ok(false) };
        self.numbers.stale();
        Ok(!self.ask_one(ask).await?.is_empty())
    }

    pub(super) async fn payload_now(&mut self, id: KeyId, task: Task) -> StoreResult<Payload> {
        if let Some(known) = self.ahead.payloads.remove(&(id, task)) {
            return Ok(known);
        }
        let single = "SELECT payload FROM tasks WHERE number = $1";
        let row = "SELECT payload FROM rows WHERE key = $1 AND fetcher = $2 AND run = $3";
        let rows = self.ask_one(match task {
            Task::Single { number } => ask!(single, number),
            Task::Row { fetcher, run } => ask!(row, id.0, fetcher.0, run),
        });
        let rows = rows.await?;
        let bytes = rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)?;
        Ok(bytes.map_or(Payload::Missing, load::payload))
    }
}
