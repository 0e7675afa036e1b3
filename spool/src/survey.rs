//! One look at a whole spool: which name is where. The monitor and fsck judge it. It does not open entries, and by its
//! end its beginning may be outdated.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;

use super::Spool;
use super::error::Result;
use super::layout::{DATA, MOVING, QUARANTINE, REGISTRY, TMP, checkouts, entries_and_others};
use super::name::{EntryName, QueueName, text};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Registry,
    Tmp,
    Data,
    Queue(QueueName),
    Checkout(QueueName),
    /// Between a queue and its checkouts.
    Moving,
    Quarantine,
}

impl Place {
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Registry => REGISTRY.into(),
            Self::Tmp => TMP.into(),
            Self::Data => DATA.into(),
            Self::Queue(queue) => queue.as_os_str().into(),
            Self::Checkout(queue) => checkouts(queue),
            Self::Moving => MOVING.into(),
            Self::Quarantine => QUARANTINE.into(),
        }
    }

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
    pub places: BTreeMap<EntryName, Vec<Place>>,
    /// What is not a regular file with an entry's name.
    pub strangers: Vec<(Place, Box<[u8]>)>,
}

/// Network file systems keep removed files that are still open under such names for a while.
const TRANSIENT: &[u8] = b".nfs";

impl Spool {
    /// Looks at everything. The registry comes last: every entry that was in a queue by then is in it.
    pub(crate) fn survey(&self) -> Result<Survey> {
        let mut survey = Survey::default();
        survey.look_in(self, &Place::Tmp)?;
        for queue in self.queues()? {
            survey.look_in(self, &Place::Queue(queue.clone()))?;
            survey.look_in(self, &Place::Checkout(queue))?;
        }
        for place in [Place::Moving, Place::Quarantine, Place::Data, Place::Registry] {
            survey.look_in(self, &place)?;
        }
        Ok(survey)
    }
}

impl Survey {
    fn look_in(&mut self, spool: &Spool, place: &Place) -> Result<()> {
        let (names, others) = entries_and_others(spool.layer(), &place.path())?;
        for name in names {
            self.places.entry(name).or_default().push(place.clone());
        }
        // Other files among our own do no harm.
        if !matches!(place, Place::Moving | Place::Quarantine) {
            let lasting = others.into_iter().filter(|name| !name.starts_with(TRANSIENT));
            self.strangers.extend(lasting.map(|name| (place.clone(), name)));
        }
        Ok(())
    }

    pub fn at(&self, place: Place) -> impl Iterator<Item = &EntryName> {
        let here = self.places.iter().filter(move |(_, places)| places.contains(&place));
        here.map(|(name, _)| name)
    }

    /// Whether a temporary file belongs to a registered name: its name equals that, or begins with it.
    pub fn owns_draft(&self, draft: &EntryName) -> bool {
        let is_registered = |name: EntryName| {
            self.places.get(&name).is_some_and(|places| places.contains(&Place::Registry))
        };
        let bytes = draft.as_bytes();
        (1..=bytes.len()).rev().any(|end| EntryName::new(&bytes[..end]).is_ok_and(is_registered))
    }
}

/// Those of a name's places where it is an entry: there must be only one.
pub(crate) fn of_entry(places: &[Place]) -> Vec<Place> {
    let is_entrys = |place: &&Place| matches!(place, Place::Queue(_) | Place::Checkout(_));
    places.iter().filter(is_entrys).cloned().collect()
}

pub(crate) fn has_entry(places: &[Place]) -> bool {
    let is_entrys = |place| matches!(place, &Place::Moving | &Place::Quarantine);
    !of_entry(places).is_empty() || places.iter().any(is_entrys)
}
