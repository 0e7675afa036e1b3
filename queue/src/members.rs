//! Members act on a queue besides the one daemon of a file: the daemons that share it on a server, and relays, on
//! machines that reach only a broker. A member owns fetchers and their lists, jobs whose leases it keeps, rejected
//! files, and an input directory.
//!
//! Plain values: what is noted of all members, read once from their [documents](crate::documents). The engine queries
//! them, and writes what changed. The owner of a job is in its key's record.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shiftboss_protocol::model::UnixSeconds;

use crate::documents::{Gone, MEMBER, Member, RELAY};
use crate::operation::{JoinRelay, REJECTED_MAX, Relay, RelayedRows, RowsAnswer};

/// See the module. A member's name is that of its document.
#[derive(Debug, Default)]
pub(crate) struct Members {
    by_name: BTreeMap<Arc<str>, Member>,
    owners: HashMap<Arc<str>, Arc<str>>,
    changed: BTreeSet<Arc<str>>,
}

type Text = (String, String);

impl Members {
    /// The documents' contents; one that cannot be parsed, because it was edited by hand, is left out.
    pub(crate) fn read(documents: &[Text]) -> Self {
        let read = |(name, text): &Text| {
            let kind = if name.starts_with(RELAY.name()) { &RELAY } else { &MEMBER };
            Some((Arc::from(&**name), kind.read(name, text)?.1))
        };
        let by_name: BTreeMap<Arc<str>, Member> = documents.iter().filter_map(read).collect();
        let owners = by_name.iter().flat_map(|(name, it)| {
            it.fetchers.iter().map(|fetcher| (fetcher.clone(), name.clone()))
        });
        Self { owners: owners.collect(), by_name, ..Self::default() }
    }

    /// Names and new texts of the documents that changed; `None`: delete it.
    pub(crate) fn take_changes(&mut self) -> Vec<(String, Option<String>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let text = |name: &Arc<str>| self.by_name.get(name).map(|member| MEMBER.text(member));
        changed.map(|name| (name.to_string(), text(&name))).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Member> {
        self.by_name.get(name)
    }

    /// A member, to change it.
    pub(crate) fn get_mut(&mut self, name: &Arc<str>) -> Option<&mut Member> {
        self.changed.insert(name.clone());
        self.by_name.get_mut(name)
    }

    fn acting_relays(&self) -> impl Iterator<Item = (&Arc<str>, &Member)> {
        let acting = self.by_name.iter().filter(|(_, member)| member.gone.is_none());
        acting.filter(|(name, _)| is_relay(name))
    }

    pub(crate) fn acting(&self, epoch: i64) -> Option<Arc<str>> {
        let mut acting = self.acting_relays();
        acting.find(|(_, relay)| relay.epoch == epoch).map(|(name, _)| name.clone())
    }

    pub(crate) fn all_acting(&self) -> Vec<Relay> {
        let relay = |(name, it): (&Arc<str>, &Member)| Relay {
            name: RELAY.whose(name).into(),
            process: it.process.as_str().into(),
            epoch: it.epoch,
            beat: 0,
        };
        self.acting_relays().map(relay).collect()
    }

    /// A relay joins; returns whether it is a different process from the last one of that name.
    pub(crate) fn join_relay(&mut self, it: &JoinRelay, now: UnixSeconds) -> bool {
        let last = self.by_name.values().map(|relay| relay.epoch).max().unwrap_or(0);
        // If all relays were forgotten, the count starts anew from the time.
        let epoch = now.saturating_mul(1_000).max(last.saturating_add(1));
        self.join(&RELAY.of(&it.name).into(), &it.process, epoch, now)
    }

    /// Returns whether it is a different process from the last one of that name. It takes over what that one had,
    /// except the rejected files.
    pub(crate) fn join(
        &mut self,
        name: &Arc<str>,
        process: &str,
        epoch: i64,
        now: UnixSeconds,
    ) -> bool {
        let known = self.by_name.remove(name);
        let is_another = known.as_ref().is_none_or(|member| member.process != *process);
        let mut known = known.unwrap_or_default();
        if is_another {
            known = Member {
                input: known.input,
                fetchers: known.fetchers,
                left: known.left,
                ..Member::default()
            };
        }
        let joined = Member {
            process: process.to_owned(),
            epoch,
            joined: now,
            gone: None,
            gone_since: None,
            ..known
        };
        self.by_name.insert(name.clone(), joined);
        self.changed.insert(name.clone());
        is_another
    }

    pub(crate) fn lose(&mut self, name: &Arc<str>, gone: Gone, since: UnixSeconds) {
        if let Some(member) = self.get_mut(name) {
            (member.gone, member.gone_since) = (Some(gone), Some(since));
        }
    }

    /// Deletes everything known of it, except its lists and lanes.
    pub(crate) fn forget(&mut self, name: &Arc<str>) {
        self.owners.retain(|_, owner| owner != name);
        self.by_name.remove(name);
        self.changed.insert(name.clone());
    }

    /// The owner of a fetcher; `None`: the daemon of a file, or none.
    pub(crate) fn owner(&self, fetcher: &str) -> Option<&Arc<str>> {
        self.owners.get(fetcher)
    }

    pub(crate) fn give(&mut self, fetcher: &Arc<str>, to: Option<&Arc<str>>) {
        if let Some(owner) = self.owners.remove(fetcher)
            && let Some(member) = self.get_mut(&owner)
        {
            member.fetchers.retain(|name| name != fetcher);
            member.left.remove(fetcher);
        }
        if let Some((member, to)) = to.and_then(|to| Some((self.get_mut(to)?, to))) {
            member.fetchers.push(fetcher.clone());
            self.owners.insert(fetcher.clone(), to.clone());
        }
    }

    /// Notes since when a fetcher's owner has no list of it; `None`: it has one.
    pub(crate) fn leave(&mut self, fetcher: &str, since: Option<UnixSeconds>) {
        let Some((fetcher, owner)) = self.owners.get_key_value(fetcher) else { return };
        let (fetcher, owner) = (fetcher.clone(), owner.clone());
        let is_left = |member: &Member| member.left.contains_key(&fetcher);
        if self.by_name.get(&owner).is_none_or(|it| is_left(it) == since.is_some()) {
            return;
        }
        let Some(member) = self.get_mut(&owner) else { return };
        match since {
            Some(since) => member.left.insert(fetcher, since),
            None => member.left.remove(&fetcher),
        };
    }
}

pub(crate) fn is_relay(member: &str) -> bool {
    member.starts_with(RELAY.name())
}

pub(crate) fn shown(member: &str) -> String {
    match is_relay(member) {
        true => format!("the relay {}", RELAY.whose(member)),
        false => format!("the daemon {}", MEMBER.whose(member)),
    }
}

/// The answer to a relay's rows whose number came before.
pub(crate) fn answer_again(it: &RelayedRows, rejected: &[i64]) -> RowsAnswer {
    let is_forgotten =
        rejected.len() == REJECTED_MAX && rejected.first().is_some_and(|first| it.number < *first);
    match rejected.contains(&it.number) {
        true => it.rejected(),
        false if is_forgotten => RowsAnswer::Lost,
        false => RowsAnswer::Stored,
    }
}

/// Adds a number of a range whose rows were rejected, and drops the lowest ones if there are too many.
pub(crate) fn reject(number: i64, rejected: &mut Vec<i64>) {
    rejected.push(number);
    rejected.drain(..rejected.len().saturating_sub(REJECTED_MAX));
}
