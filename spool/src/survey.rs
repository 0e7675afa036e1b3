//! One look at all of a spool: what is where. The monitor and fsck judge it. It
//! opens no entry, and by the time it ends its beginning may not be true any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Spool;
use super::error::Result;
use super::layout::{DATA, MOVING, REGISTRY, TMP, checkouts, entries, entries_and_others};
use super::name::{EntryName, QueueName, text};

/// A directory of the spool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Registry,
    Tmp,
    Data,
    Queue(QueueName),
    Checkout(QueueName),
}

impl Place {
    /// Where it is in the spool.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Registry => REGISTRY.into(),
            Self::Tmp => TMP.into(),
            Self::Data => DATA.into(),
            Self::Queue(queue) => queue.as_os_str().into(),
            Self::Checkout(queue) => checkouts(queue),
        }
    }

    /// Where an entry is in it.
    pub(crate) fn file(&self, name: &EntryName) -> PathBuf {
        self.path().join(name.as_os_str())
    }
}

impl fmt::Display for Place {
    /// Its path in the spool, with `\xNN` for what is not text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self.path().as_os_str().as_bytes()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub registry: HashSet<EntryName>,
    pub tmp: Vec<EntryName>,
    pub data: HashSet<EntryName>,
    /// Entries of all queues and their checkouts.
    pub placed: Vec<(Place, Vec<EntryName>)>,
    pub quarantine: HashSet<EntryName>,
    /// Between a queue and its checkouts.
    pub moving: Vec<EntryName>,
    /// What is not a regular file with an entry's name.
    pub strangers: Vec<(Place, Box<[u8]>)>,
}

/// Network file systems keep removed files that are open under such names, for a while.
const TRANSIENT: &[u8] = b".nfs";

impl Spool {
    /// Looks at everything. The registry comes last: who is in a queue by then is in it.
    pub(crate) fn survey(&self) -> Result<Survey> {
        let mut survey = Survey::default();
        survey.tmp = self.names_in(&Place::Tmp, &mut survey)?;
        for queue in self.queues()? {
            for place in [Place::Queue(queue.clone()), Place::Checkout(queue)] {
                let names = self.names_in(&place, &mut survey)?;
                survey.placed.push((place, names));
            }
        }
        survey.moving = entries(self.layer(), Path::new(MOVING))?;
        survey.quarantine = self.quarantined()?.into_iter().collect();
        survey.data = self.names_in(&Place::Data, &mut survey)?.into_iter().collect();
        survey.registry = self.names_in(&Place::Registry, &mut survey)?.into_iter().collect();
        Ok(survey)
    }

    fn names_in(&self, place: &Place, survey: &mut Survey) -> Result<Vec<EntryName>> {
        let (names, others) = entries_and_others(self.layer(), &place.path())?;
        let lasting = others.into_iter().filter(|name| !name.starts_with(TRANSIENT));
        survey.strangers.extend(lasting.map(|name| (place.clone(), name)));
        Ok(names)
    }
}

impl Survey {
    /// The registered names that have an entry somewhere.
    pub fn living(&self) -> HashSet<&EntryName> {
        let mut names: HashSet<_> = HashSet::with_capacity(self.registry.len());
        names.extend(self.placed.iter().flat_map(|(_, names)| names));
        names.extend(self.quarantine.iter().chain(&self.moving));
        names
    }

    /// The names that are in several places, each with those.
    pub fn duplicated(&self) -> Vec<(&EntryName, Vec<Place>)> {
        let mut first: HashMap<&EntryName, usize> = HashMap::with_capacity(self.registry.len());
        let mut several: BTreeMap<&EntryName, Vec<Place>> = BTreeMap::new();
        for (index, (place, names)) in self.placed.iter().enumerate() {
            for name in names {
                if let Some(before) = first.insert(name, index) {
                    let places =
                        several.entry(name).or_insert_with(|| vec![self.placed[before].0.clone()]);
                    places.push(place.clone());
                }
            }
        }
        several.into_iter().collect()
    }

    /// Whether a temporary file belongs to a registered name: it is that, or begins with it.
    pub fn owns_draft(&self, draft: &EntryName) -> bool {
        let bytes = draft.as_bytes();
        (1..=bytes.len()).rev().any(|end| {
            EntryName::new(&bytes[..end]).is_ok_and(|name| self.registry.contains(&name))
        })
    }

    /// Registered names without an entry, in order.
    pub fn unplaced(&self) -> Vec<&EntryName> {
        let living = self.living();
        let mut names: Vec<_> =
            self.registry.iter().filter(|name| !living.contains(name)).collect();
        names.sort();
        names
    }
}
