//! Keys to which an order is given together, as by `retry --prefix`. One answer looks at a bounded number of keys, and
//! the next one goes on behind them: nobody has ten million keys in memory. Each walk goes one way, so a key that the
//! order has changed meanwhile is not met again.

use super::failed::Failed;
use super::{Look, STEP};
use crate::groups::GroupId;
use crate::listings::{Along, Listings, Spot, behind};
use crate::reader::{Behind, FailedTasks, Order, Selected, Selection};
use crate::record::{FetcherId, ListRow, Record, SingleStatus, Task};
use crate::records::Stored;

/// About how many keys one answer looks at.
const LOOKED_MAX: usize = 4_096;

/// What lists the keys that may be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Along(Along),
    FailedSingles,
}

/// A key that may be meant, and the number of the single task by which it was found.
type Met = (Stored, Option<i64>);

/// Whether a task of the key is in the group.
fn is_in(record: &Record, group: GroupId) -> bool {
    let rows = record.newest_rows().map(|row| row.group);
    rows.chain([record.singles.group]).flatten().any(|it| it == group)
}

impl<S: Listings> Look<'_, S> {
    /// The names that this queue knows, of lists that it has or had.
    pub(super) fn fetchers_known(&self) -> Vec<String> {
        self.context.fetchers.values().map(|name| name.to_string()).collect()
    }

    pub(super) async fn select(
        &mut self,
        asked: &Selection,
        begin: Option<&Behind>,
    ) -> Result<Selected, S::Error> {
        let mut found = Selected { behind: begin.cloned(), ..Selected::default() };
        let fetcher = asked.fetcher.as_ref().map(|name| self.fetcher(name));
        // An unknown fetcher has no keys.
        if fetcher == Some(None) {
            return Ok(Selected::default());
        }
        let fetcher = fetcher.flatten();
        let sources = self.sources(asked.order, fetcher);
        let group = asked.group.as_deref().map(GroupId::of);
        for _ in 0..LOOKED_MAX / STEP {
            let step = match &sources {
                None => self.step_of_all(&asked.prefix, &mut found).await?,
                Some(sources) => self.step_along(sources, &mut found).await?,
            };
            for met in step {
                let is_in = |group| is_in(&met.0.record, group);
                if met.0.record.key.as_str().starts_with(&asked.prefix) && group.is_none_or(is_in) {
                    self.take(asked.order, fetcher, &met, &mut found).await?;
                }
            }
            if found.behind.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// Indexes that have all keys that may be meant, by ascending numbers; `None`: it takes a walk over all keys.
    fn sources(&self, order: Order, fetcher: Option<FetcherId>) -> Option<Vec<(i64, Source)>> {
        let along = |all: &[Along]| (0..).zip(all.iter().map(|it| Source::Along(*it))).collect();
        Some(match (order, fetcher) {
            (Order::Unhold, _) => along(&[Along::Held, Along::BackedOff]),
            (Order::RetryFailed(_), _) => {
                vec![(0, Source::Along(Along::Failed)), (1, Source::FailedSingles)]
            }
            (Order::Forget, _) | (_, None) => return None,
            (_, Some(FetcherId::TASKS)) => along(&[Along::Singles]),
            (_, Some(fetcher)) => {
                let runs = self.head.header.runs.range((fetcher, i64::MIN)..=(fetcher, i64::MAX));
                let source = |run: i64| (run, Source::Along(Along::Run(fetcher, run)));
                runs.map(|((_, run), _)| source(*run)).collect()
            }
        })
    }

    /// The next keys with the prefix, in the order of their bytes.
    async fn step_of_all(
        &mut self,
        prefix: &str,
        found: &mut Selected,
    ) -> Result<Vec<Met>, S::Error> {
        let from = match &found.behind {
            // The first text behind it.
            Some(Behind::Key(last)) => format!("{last}\0"),
            _ => prefix.to_owned(),
        };
        let ids = self.store.between(&from, behind(prefix).as_deref(), STEP).await?;
        let records = self.records(&ids).await?;
        let last = records.last().filter(|_| ids.len() == STEP);
        found.behind = last.map(|last| Behind::Key(last.record.key.to_string()));
        Ok(records.into_iter().map(|it| (it, None)).collect())
    }

    /// The next keys of the source at which the last step ended, or of the one behind it.
    async fn step_along(
        &mut self,
        sources: &[(i64, Source)],
        found: &mut Selected,
    ) -> Result<Vec<Met>, S::Error> {
        let (at, spot) = match found.behind {
            Some(Behind::Spot(at, spot)) => (at, spot),
            _ => (i64::MIN, None),
        };
        let Some((number, source)) = sources.iter().copied().find(|(number, _)| *number >= at)
        else {
            found.behind = None;
            return Ok(Vec::new());
        };
        let spot = spot.filter(|_| number == at);
        let spots: Vec<Spot> = match source {
            Source::Along(along) => self.store.keys(along, spot, STEP).await?,
            Source::FailedSingles => {
                let after = spot.map_or(0, |(number, _)| number);
                self.store.singles(SingleStatus::Failed, after, STEP).await?
            }
        };
        found.behind = Some(match spots.last().filter(|_| spots.len() == STEP) {
            Some(last) => Behind::Spot(number, Some(*last)),
            None => Behind::Spot(number.saturating_add(1), None),
        });
        let single = |at: i64| (source == Source::FailedSingles).then_some(at);
        let mut met =
            self.records_of(spots.into_iter().map(|(at, id)| (id, single(at))).collect()).await?;
        // Each key counts once, where it is met first, or where its newest row is.
        met.retain(|(Stored { record, .. }, _)| match source {
            Source::Along(Along::BackedOff) => record.extras.hold.is_none(),
            Source::Along(Along::Run(fetcher, run)) => record.has(Task::Row { fetcher, run }),
            _ => true,
        });
        Ok(met)
    }

    /// Notes what is meant of a key, if anything is.
    async fn take(
        &mut self,
        order: Order,
        fetcher: Option<FetcherId>,
        (Stored { record, .. }, single): &Met,
        found: &mut Selected,
    ) -> Result<(), S::Error> {
        let mut meant: Vec<Option<FetcherId>> = match order {
            Order::RetryFailed(those) => {
                let failed = self.failed_tasks(record, *single, those).await?;
                failed.into_iter().map(|task| Some(task.fetcher())).collect()
            }
            order if self.is_meant(order, fetcher, record) => vec![fetcher],
            _ => Vec::new(),
        };
        meant.retain(|it| fetcher.is_none() || *it == fetcher);
        if matches!(order, Order::Retry | Order::RetryFailed(_) | Order::Bump)
            && record.is_on_hold()
        {
            found.held += u64::from(!meant.is_empty());
            return Ok(());
        }
        let meant = meant.into_iter().map(|fetcher| {
            let name = fetcher.map(|fetcher| self.name(fetcher));
            (record.key.clone(), name)
        });
        found.keys.extend(meant);
        Ok(())
    }

    /// Whether the order does something to the key.
    fn is_meant(&self, order: Order, fetcher: Option<FetcherId>, record: &Record) -> bool {
        let (singles, out) = (&record.singles, record.flight.as_ref().map(|it| it.task.fetcher()));
        let has_singles = singles.waiting > 0 || singles.failed > 0 || singles.dead > 0;
        let is_its = |of: FetcherId| fetcher.is_none_or(|only| only == of);
        let rows = || {
            let rows = record.newest_rows().filter(|row| !self.context.is_going(row.task()));
            rows.filter(|row| is_its(row.fetcher))
        };
        let is_listed = rows().next().is_some()
            || is_its(FetcherId::TASKS) && (has_singles || out == Some(FetcherId::TASKS));
        match order {
            Order::Hold => !record.is_on_hold() && is_listed,
            Order::Unhold => record.is_on_hold() && (fetcher.is_none() || is_listed),
            Order::Cancel => has_singles && is_listed,
            Order::Bump => is_listed && record.extras.bump.is_none(),
            Order::Retry => {
                let has_ended = |row: &ListRow| !record.is_armed(row) && out != Some(row.fetcher);
                let has_ended_single = singles.failed > 0 || singles.dead > 0;
                is_its(FetcherId::TASKS) && has_ended_single || rows().any(has_ended)
            }
            Order::Forget => {
                let was_its = fetcher.is_none_or(|it| record.served.contains_key(&it));
                !record.is_listed() && record.flight.is_none() && was_its
            }
            Order::RetryFailed(_) => false,
        }
    }

    /// Its rows that failed so, or the single task if it did.
    async fn failed_tasks(
        &mut self,
        record: &Record,
        single: Option<i64>,
        those: FailedTasks,
    ) -> Result<Vec<Task>, S::Error> {
        let failed = match single {
            None => self.failed_rows_of(record).await?,
            Some(number) => self.failed_single_of(record, number).await?.into_iter().collect(),
        };
        let is_meant = |(_, (exit_code, finished)): &Failed| {
            let is_since = |since| finished.is_none_or(|it| it >= since);
            those.since.is_none_or(is_since)
                && those.exit_code.is_none_or(|code| *exit_code == Some(code))
        };
        Ok(failed.into_iter().filter(is_meant).map(|(task, _)| task).collect())
    }
}
