//! The read-only port of a store in memory.

use std::collections::BTreeMap;
use std::convert::Infallible;

use shiftboss_protocol::model::{Attempt, Key};

use super::{Memory, Single};
use crate::code;
use crate::documents::{DAEMON, HOLDS};
use crate::groups::GroupId;
use crate::listings::GroupSeen;
use crate::listings::{Along, Document, End, EndsOf, Head, Listings, Spot, Summed, SumsOf, read};
use crate::place::Place;
use crate::record::Millis;
use crate::record::{Record, SingleStatus, Task};
use crate::records::{KeyId, Name, Payload, Stored};
use crate::rules::groups::{Group, Opening};
use crate::sums::Hour;
use shiftboss_protocol::answers::KnownKey;

type Result<T> = std::result::Result<T, Infallible>;

impl Memory {
    fn spot(&self, along: Along, record: &Record, place: &Place) -> Option<i64> {
        let (turn, listed) = (place.order.map(code::turn), record.listed());
        match along {
            Along::Order => turn.filter(|_| !place.classic_held),
            Along::Group(group) => {
                turn.filter(|_| place.group == Some(group) && !place.classic_held)
            }
            Along::ClassicHeld => turn.filter(|_| place.classic_held),
            Along::Lane => place.lane.filter(|_| place.group.is_none()),
            Along::Out => record.flight.as_ref().map(|flight| flight.attempt.0),
            Along::Claimed => record
                .last
                .filter(|_| record.is_claimed && record.is_unfinished())
                .map(|it| it.started),
            Along::Delayed => listed.delayed,
            Along::Dead => listed.dead.then_some(0),
            Along::Held => listed.held,
            Along::BackedOff => listed.backed_off,
            Along::Failed => record.failed_at(),
            Along::Run(fetcher, run) => record.row(fetcher, run).map(|_| 0),
            Along::Singles => {
                let mut singles = self.kept.singles.values();
                singles.any(|single| single.key == record.key).then_some(0)
            }
        }
    }

    fn id(&self, key: &Key) -> KeyId {
        KeyId(self.kept.ids.get(key).copied().unwrap_or(i64::MAX))
    }

    /// In the order of their numbers.
    fn all_ends(&self) -> impl DoubleEndedIterator<Item = End> {
        self.kept.ended.iter().map(|(number, attempt)| End {
            number: *number,
            key: self.id(&attempt.key),
            attempt: attempt.clone(),
        })
    }

    fn end(&self, attempt: Attempt) -> Option<End> {
        self.all_ends().find(|end| end.attempt.attempt == attempt)
    }

    fn singles_with(&self, is_meant: impl Fn(i64, &Single) -> bool, count: usize) -> Vec<Spot> {
        let singles = self.kept.singles.iter().filter(|(number, it)| is_meant(**number, it));
        singles.map(|(number, it)| (*number, self.id(&it.key))).take(count).collect()
    }
}

fn seen((group, opening, opens): &(Group, Opening, Option<Millis>)) -> GroupSeen {
    GroupSeen { group: group.clone(), kind: code::opening(*opening), opens: *opens }
}

impl Listings for Memory {
    type Error = Infallible;

    async fn head(&mut self) -> Result<Head> {
        let daemon = read(&DAEMON, &self.documents_of(DAEMON.name())).pop().map(|(_, it)| it);
        let holds = read(&HOLDS, &self.documents_of(HOLDS.name())).pop();
        let holds = holds.map(|(_, it)| it).unwrap_or_default();
        Ok(Head { header: self.kept.header.clone(), daemon, holds, ..Head::default() })
    }

    async fn documents(&mut self, prefixes: &[&str]) -> Result<Vec<Document>> {
        Ok(prefixes.iter().flat_map(|prefix| self.documents_of(prefix)).collect())
    }

    async fn owners(&mut self) -> Result<Vec<(String, i64)>> {
        let mut owners = BTreeMap::new();
        for (record, _) in self.kept.keys.values() {
            if let Some(owner) = record.flight.as_ref().and_then(|flight| flight.owner.as_ref()) {
                *owners.entry(owner.to_string()).or_insert(0) += 1;
            }
        }
        Ok(owners.into_iter().collect())
    }

    async fn keys(
        &mut self,
        along: Along,
        behind: Option<Spot>,
        count: usize,
    ) -> Result<Vec<Spot>> {
        let all = self.kept.keys.values();
        let mut spots: Vec<Spot> = all
            .filter_map(|it| Some((self.spot(along, &it.0, &it.1)?, self.id(&it.0.key))))
            .collect();
        spots.sort_unstable();
        if along.is_backward() {
            spots.reverse();
        }
        let is_behind = |spot: &Spot| match behind {
            Some(behind) if along.is_backward() => *spot < behind,
            Some(behind) => *spot > behind,
            None => true,
        };
        Ok(spots.into_iter().filter(is_behind).take(count).collect())
    }

    async fn records(&mut self, ids: &[KeyId]) -> Result<Vec<Stored>> {
        let records = self.kept.keys.values();
        Ok(records
            .filter(|it| ids.contains(&self.id(&it.0.key)))
            .map(|it| self.stored(it))
            .collect())
    }

    async fn named(&mut self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        Ok(keys.iter().map(|key| self.find(&Name::Key(key.clone()))).collect())
    }

    async fn known(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KnownKey>> {
        let is_between = |key: &str| key >= from && before.is_none_or(|before| key < before);
        let records = self.kept.keys.values().map(|it| &it.0);
        let known = records
            .filter(|it| is_between(it.key.as_str()) && (it.is_listed() || it.last.is_some()));
        let mut known: Vec<KnownKey> = known
            .map(|it| KnownKey {
                key: it.key.to_string(),
                last_started: it.last.map(|last| last.started),
                exit_code: it.last.and_then(|last| last.exit_code),
            })
            .collect();
        known.sort_by(|one, other| one.key.cmp(&other.key));
        known.truncate(count);
        Ok(known)
    }

    async fn between(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KeyId>> {
        let keys = self.kept.keys.values().map(|it| &it.0.key);
        let is_between =
            |key: &&Key| key.as_str() >= from && before.is_none_or(|before| key.as_str() < before);
        let mut keys: Vec<&Key> = keys.filter(is_between).collect();
        keys.sort_by_key(|key| key.as_str());
        Ok(keys.into_iter().take(count).map(|key| self.id(key)).collect())
    }

    async fn listed(&mut self) -> Result<Vec<KeyId>> {
        let records = self.kept.keys.values().filter(|it| it.0.is_listed());
        Ok(records.map(|it| self.id(&it.0.key)).collect())
    }

    async fn sample(&mut self, parts: usize) -> Result<Vec<KeyId>> {
        let each = self.kept.keys.len() / parts.max(1) + 1;
        let records = self.kept.keys.values().step_by(each);
        Ok(records.map(|it| self.id(&it.0.key)).collect())
    }

    async fn groups(&mut self, kind: i64, count: usize) -> Result<Vec<GroupSeen>> {
        // Those with higher numbers first.
        let mut groups: Vec<_> = self.kept.groups.values().rev().map(seen).collect();
        groups.retain(|it| it.kind == kind);
        groups.sort_by_key(|it| std::cmp::Reverse(it.group.waiting));
        groups.truncate(count);
        Ok(groups)
    }

    async fn group(&mut self, id: GroupId) -> Result<Option<GroupSeen>> {
        Ok(self.kept.groups.get(&id).map(seen))
    }

    async fn group_counts(&mut self) -> Result<Vec<(i64, i64, i64)>> {
        let mut counts = BTreeMap::<i64, (i64, i64)>::new();
        for it in self.kept.groups.values().map(seen) {
            let (groups, waiting) = counts.entry(it.kind).or_default();
            (*groups, *waiting) = (*groups + 1, *waiting + it.group.waiting);
        }
        Ok(counts.into_iter().map(|(kind, (groups, waiting))| (kind, groups, waiting)).collect())
    }

    async fn payloads(&mut self, tasks: &[(KeyId, Task)]) -> Result<Vec<Payload>> {
        Ok(tasks.iter().map(|(id, task)| self.payload_of(*id, *task)).collect())
    }

    async fn singles_of(
        &mut self,
        key: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> Result<Vec<i64>> {
        let key = Self::named(self, key);
        let is_meant = |_, it: &Single| Some(&it.key) == key && it.status == status;
        Ok(self.singles_with(is_meant, count).into_iter().map(|(number, _)| number).collect())
    }

    async fn singles(
        &mut self,
        status: SingleStatus,
        behind: i64,
        count: usize,
    ) -> Result<Vec<Spot>> {
        let is_meant = |number, it: &Single| number > behind && it.status == status;
        Ok(self.singles_with(is_meant, count))
    }

    async fn ends(&mut self, of: &EndsOf<'_>) -> Result<Vec<End>> {
        let is_meant = |end: &End| {
            let it = &end.attempt;
            end.number > of.above
                && end.number < of.before
                && (of.outcomes.is_empty() || of.outcomes.contains(&it.outcome.word()))
                && of.fetcher.is_none_or(|fetcher| it.task.fetcher() == fetcher)
                && it.ended >= of.since
        };
        Ok(self.all_ends().rev().filter(is_meant).take(of.count).collect())
    }

    async fn last_end(&mut self) -> Result<i64> {
        Ok(self.kept.ends)
    }

    async fn ends_behind(&mut self, number: i64, upto: i64, count: usize) -> Result<Vec<End>> {
        let is_meant = |end: &End| end.number > number && end.number <= upto;
        Ok(self.all_ends().filter(is_meant).take(count).collect())
    }

    async fn floor(&mut self, before: i64, count: usize) -> Result<Option<i64>> {
        let numbers = self.kept.ended.range(..before).rev().map(|(number, _)| *number);
        Ok(numbers.take(count).nth(count.saturating_sub(1)))
    }

    async fn chain(&mut self, last: Attempt, count: usize) -> Result<Vec<End>> {
        let before = |end: &End| self.end(end.attempt.previous);
        Ok(std::iter::successors(self.end(last), before).take(count).collect())
    }

    async fn hours(&mut self, of: &SumsOf<'_>) -> Result<Vec<Summed>> {
        let mut sums: BTreeMap<_, Hour> = BTreeMap::new();
        for ((hour, fetcher, outcome), it) in &self.kept.sums.hours {
            if *hour >= of.since && of.fetchers.is_none_or(|them| them.contains(fetcher)) {
                let first = (of.hours > 0).then(|| hour.div_euclid(of.hours) * of.hours * 3_600);
                let group = (of.by_fetcher.then_some(*fetcher), first, *outcome);
                sums.entry(group).or_default().add(*it, 1);
            }
        }
        let summed = |((fetcher, since, outcome), sums)| Summed { fetcher, since, outcome, sums };
        Ok(sums.into_iter().filter(|it| it.1.jobs > 0).map(summed).take(of.count).collect())
    }

    async fn minutes(&mut self, behind: i64) -> Result<Vec<(i64, i64, i64)>> {
        let minutes = self.kept.sums.minutes.iter();
        let minutes = minutes.map(|((minute, exit_code), jobs)| (*minute, *exit_code, *jobs));
        Ok(minutes.filter(|it| it.0 > behind && it.2 > 0).collect())
    }
}
