//! Relays: who acts on a queue through a daemon, from a machine that reaches a broker only. What is a daemon's own is a relay's own
//! here: fetchers and their lists, leased attempts, rejected files, an input directory.
//!
//! Plain values: what is noted of all relays, read once from their [documents]. The engine asks, and writes what changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, UnixSeconds};

use crate::documents::{self, Gone, RELAY, RELAY_LEASE};
use crate::operation::{JoinRelay, REJECTED_MAX, Relay, RelayedRows, RowsAnswer};

/// See the module. What is here of an attempt that ended goes with its end.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    by_name: BTreeMap<Arc<str>, documents::Relay>,
    leases: HashMap<Attempt, Arc<str>>,
    changed: BTreeSet<Arc<str>>,
    changed_leases: BTreeSet<Attempt>,
}

/// A document's name and its text.
type Text = (String, String);

impl Relays {
    /// What the documents say; one that somebody edited into nonsense is none.
    pub(crate) fn read(relays: &[Text], leases: &[Text]) -> Self {
        let relays = relays.iter().filter_map(|(name, text)| RELAY.read(name, text));
        let leases = leases.iter().filter_map(|(name, text)| RELAY_LEASE.read(name, text));
        Self {
            by_name: relays.map(|(name, relay)| (name.into(), relay)).collect(),
            leases: leases
                .filter_map(|(it, name)| Some((Attempt(it.parse().ok()?), name)))
                .collect(),
            ..Self::default()
        }
    }

    /// Names and texts of the documents that are other ones by now; `None`: it goes.
    pub(crate) fn take_changes(&mut self) -> Vec<(String, Option<String>)> {
        let relays = std::mem::take(&mut self.changed);
        let relays = relays
            .into_iter()
            .map(|name| (RELAY.of(&name), self.by_name.get(&name).map(|relay| RELAY.text(relay))));
        let leases = std::mem::take(&mut self.changed_leases);
        let leases = leases.into_iter().map(|it| {
            let text = self.leases.get(&it).map(|name| RELAY_LEASE.text(name));
            (RELAY_LEASE.of(&it.0.to_string()), text)
        });
        relays.chain(leases).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&documents::Relay> {
        self.by_name.get(name)
    }

    /// To be changed.
    pub(crate) fn get_mut(&mut self, name: &Arc<str>) -> Option<&mut documents::Relay> {
        self.changed.insert(name.clone());
        self.by_name.get_mut(name)
    }

    /// The one that acts under an epoch.
    pub(crate) fn acting(&self, epoch: i64) -> Option<Arc<str>> {
        let mut acting = self.by_name.iter().filter(|(_, relay)| relay.gone.is_none());
        acting.find(|(_, relay)| relay.epoch == epoch).map(|(name, _)| name.clone())
    }

    /// Those that act, by name.
    pub(crate) fn all_acting(&self) -> Vec<Relay> {
        let acting = self.by_name.iter().filter(|(_, relay)| relay.gone.is_none());
        let relay = |(name, it): (&Arc<str>, &documents::Relay)| Relay {
            name: name.clone(),
            process: it.process.as_str().into(),
            epoch: it.epoch,
            beat: 0,
        };
        acting.map(relay).collect()
    }

    /// Whether it is another process of that name than the last one. What that had is its own, but for the files that it rejected.
    pub(crate) fn join(&mut self, it: &JoinRelay, now: UnixSeconds) -> bool {
        let last = self.by_name.values().map(|relay| relay.epoch).max().unwrap_or(0);
        let known = self.by_name.remove(&it.name);
        let is_another = known.as_ref().is_none_or(|relay| relay.process != *it.process);
        let known = known.unwrap_or_default();
        let relay = documents::Relay {
            process: it.process.to_string(),
            // Times begin a new count where all relays were forgotten.
            epoch: now.saturating_mul(1_000).max(last.saturating_add(1)),
            joined: now,
            gone: None,
            rejected: BTreeMap::new(),
            ..known
        };
        self.by_name.insert(it.name.clone(), relay);
        self.changed.insert(it.name.clone());
        is_another
    }

    /// Its leases are the daemon's from now on; so many were its. `None`: it has another epoch by now, or was lost before.
    pub(crate) fn lose(&mut self, epoch: i64, is_stopped: bool) -> Option<u64> {
        let name = self.acting(epoch)?;
        self.get_mut(&name)?.gone = Some(if is_stopped { Gone::Stopped } else { Gone::Silent });
        Some(self.drop_leases(&name))
    }

    /// All that is known of it goes, but for its lists and lanes.
    pub(crate) fn forget(&mut self, name: &Arc<str>) {
        self.by_name.remove(name);
        self.changed.insert(name.clone());
        self.drop_leases(name);
    }

    fn drop_leases(&mut self, name: &Arc<str>) -> u64 {
        let of_it = self.leases.iter().filter(|(_, relay)| *relay == name);
        let of_it: Vec<Attempt> = of_it.map(|(attempt, _)| *attempt).collect();
        of_it.iter().for_each(|attempt| self.see_to(*attempt, None));
        of_it.len() as u64
    }

    /// Whose a fetcher is; `None`: the daemon's, or nobody's.
    pub(crate) fn owner(&self, fetcher: &str) -> Option<&Arc<str>> {
        let has = |relay: &documents::Relay| relay.fetchers.iter().any(|name| **name == *fetcher);
        self.by_name.iter().find(|(_, relay)| has(relay)).map(|(name, _)| name)
    }

    /// A fetcher is somebody else's from now on.
    pub(crate) fn give(&mut self, fetcher: &Arc<str>, to: Option<&Arc<str>>) {
        if let Some(owner) = self.owner(fetcher).cloned()
            && let Some(relay) = self.get_mut(&owner)
        {
            relay.fetchers.retain(|name| name != fetcher);
        }
        if let Some(relay) = to.and_then(|to| self.get_mut(to)) {
            relay.fetchers.push(fetcher.clone());
        }
    }

    /// Who sees to an attempt that is out; `None`: the daemon.
    pub(crate) fn sees_to(&self, attempt: Attempt) -> Option<&Arc<str>> {
        self.leases.get(&attempt)
    }

    /// An attempt is seen to by somebody else from now on; one that ended is nobody's.
    pub(crate) fn see_to(&mut self, attempt: Attempt, relay: Option<&Arc<str>>) {
        let before = match relay {
            Some(relay) => self.leases.insert(attempt, relay.clone()),
            None => self.leases.remove(&attempt),
        };
        if before.as_ref() != relay {
            self.changed_leases.insert(attempt);
        }
    }
}

/// What relays' rows are answered whose number came before.
pub(crate) fn answer_again(it: &RelayedRows, rejected: &[i64]) -> RowsAnswer {
    let is_forgotten =
        rejected.len() == REJECTED_MAX && rejected.first().is_some_and(|first| it.number < *first);
    match rejected.contains(&it.number) {
        true => it.rejected(),
        false if is_forgotten => RowsAnswer::Lost,
        false => RowsAnswer::Stored,
    }
}

/// One more number of a range whose rows were rejected; without the lowest ones if they are too many.
pub(crate) fn reject(number: i64, rejected: &mut Vec<i64>) {
    rejected.push(number);
    rejected.drain(..rejected.len().saturating_sub(REJECTED_MAX));
}
