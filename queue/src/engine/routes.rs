//! Fetchers that workers name, to take their tasks alone. Only for those do keys have [routes](crate::place::Route): all
//! keys of a fetcher get theirs in steps when the first worker names it, whose request waits for that.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Batch, Carried, Engine};
use crate::documents::ROUTED;
use crate::error::Rejected;
use crate::operation::Operation;
use crate::record::FetcherId;
use crate::records::{KeyId, Records, StoreResult};
use crate::rules::dispatch::Scope;

/// Most fetchers that workers may name.
const ROUTED_MAX: usize = 10_000;
/// How many keys get their routes in one batch.
const STEP: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routed {
    all: Arc<BTreeSet<FetcherId>>,
    /// Those of which not all keys have their routes yet.
    begun: BTreeSet<FetcherId>,
}

/// A fetcher's run, and the last of its keys that has its route.
pub(super) type RouteAt = ((FetcherId, i64), Option<KeyId>);

impl<S: Records> Engine<S> {
    /// Whether a batch names fetchers whose keys have no routes yet.
    pub(super) fn must_route(&self, batch: &[Operation]) -> bool {
        let of = |name: &Arc<str>| self.memo.names.get(name);
        let routed = self.memo.routed.as_ref();
        let is_routed = |it: &FetcherId| {
            routed.is_some_and(|routed| routed.all.contains(it) && !routed.begun.contains(it))
        };
        batch.iter().any(|operation| match operation {
            Operation::Dispatch(it) => {
                let named = it.fetchers.iter().flatten();
                named.filter_map(of).any(|it| !is_routed(it))
                    || routed.is_none() && it.fetchers.is_some()
            }
            Operation::Relayed(it) => self.must_route(&it.operations),
            _ => false,
        })
    }
}

impl<S: Records> Batch<'_, S> {
    pub(super) async fn read_routed(&mut self) -> StoreResult<()> {
        if self.memo.routed.is_none() {
            let noted = self.document(&ROUTED, ROUTED.name()).await?.unwrap_or_default();
            let begun = noted.iter().filter(|(_, is_done)| !**is_done).map(|(it, _)| *it).collect();
            let all = Arc::new(noted.into_keys().collect());
            self.memo.routed = Some(Routed { all, begun });
        }
        if let Some(routed) = &self.memo.routed {
            self.context.routed = routed.all.clone();
        }
        Ok(())
    }

    /// Whether the tasks of these fetchers can be found; if not, some more of their keys get their routes.
    pub(super) async fn is_routed(&mut self, scope: &Scope) -> Carried<bool> {
        let Scope::Fetchers(fetchers) = scope else { return Ok(Ok(true)) };
        let Some(mut routed) = self.memo.routed.take() else { return Ok(Ok(false)) };
        let new: Vec<FetcherId> =
            fetchers.iter().filter(|it| !routed.all.contains(it)).copied().collect();
        let next =
            fetchers.iter().find(|it| new.contains(it) || routed.begun.contains(it)).copied();
        let is_full = !new.is_empty() && routed.all.len() + new.len() > ROUTED_MAX;
        let Some(fetcher) = next.filter(|_| self.is_alone && !is_full) else {
            self.memo.routed = Some(routed);
            return Ok(match is_full {
                true => Err(Rejected(format!("workers name more than {ROUTED_MAX} fetchers"))),
                // Otherwise the next batch is alone.
                false => Ok(next.is_none()),
            });
        };
        if !new.is_empty() {
            // From now on each key that is saved gets its route.
            Arc::make_mut(&mut routed.all).extend(new.iter().copied());
            routed.begun.extend(new);
            self.context.routed = routed.all.clone();
            self.note_routed(&routed).await?;
        }
        self.route_some(&mut routed, fetcher).await?;
        self.memo.routed = Some(routed);
        Ok(Ok(false))
    }

    async fn route_some(&mut self, routed: &mut Routed, fetcher: FetcherId) -> StoreResult<()> {
        self.flush().await?;
        let at = self.memo.route_at.take().filter(|((of, _), _)| *of == fetcher);
        let (run, behind) = match at {
            Some(at) => at,
            None => match self.run_after(fetcher, i64::MIN) {
                Some(first) => (first, None),
                None => return self.all_routed(routed, fetcher).await,
            },
        };
        let keys = self.store.of_run(run, behind, STEP).await?;
        let last = keys.last().map(|it| it.id).filter(|_| keys.len() == STEP);
        for stored in keys {
            let slot = self.desk.put(stored);
            self.changed(slot);
        }
        let next = match last {
            Some(last) => Some((run, Some(last))),
            None => run
                .1
                .checked_add(1)
                .and_then(|behind| self.run_after(fetcher, behind))
                .map(|run| (run, None)),
        };
        self.memo.route_at = next;
        match next {
            Some(_) => Ok(()),
            None => self.all_routed(routed, fetcher).await,
        }
    }

    /// The first run of a fetcher from there on; single tasks have one.
    fn run_after(&self, fetcher: FetcherId, from: i64) -> Option<(FetcherId, i64)> {
        if fetcher == FetcherId::TASKS {
            return (from == i64::MIN).then_some((fetcher, 0));
        }
        let runs = &self.header.runs;
        runs.range((fetcher, from)..=(fetcher, i64::MAX)).next().map(|(run, _)| *run)
    }

    async fn all_routed(&mut self, routed: &mut Routed, fetcher: FetcherId) -> StoreResult<()> {
        routed.begun.remove(&fetcher);
        self.note_routed(routed).await
    }

    async fn note_routed(&mut self, routed: &Routed) -> StoreResult<()> {
        let noted = routed.all.iter().map(|it| (*it, !routed.begun.contains(it))).collect();
        self.note(&ROUTED, ROUTED.of(""), &noted).await
    }
}
