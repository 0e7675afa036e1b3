//! The records that a batch named, by what they are called. Found by [`records`](super::records); nothing is asked of the server here.

use std::collections::HashMap;

use shiftboss_protocol::model::{Attempt, Key};
use shiftboss_queue::records::{KeyId, Name, Stored};

/// Records by what they are called.
pub(crate) struct Known {
    pub(crate) all: Vec<Stored>,
    by_key: HashMap<Key, usize>,
    by_flight: HashMap<Attempt, usize>,
    by_id: HashMap<KeyId, usize>,
    others: Vec<(Name, KeyId)>,
}

impl Known {
    pub(crate) fn of(all: Vec<Stored>) -> Self {
        let (by_key, by_flight, by_id) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut known = Self { all: Vec::new(), by_key, by_flight, by_id, others: Vec::new() };
        known.add(all, Vec::new());
        known
    }

    pub(crate) fn add(&mut self, more: Vec<Stored>, others: Vec<(Name, KeyId)>) {
        for stored in more {
            let at = self.all.len();
            self.by_key.insert(stored.record.key.clone(), at);
            self.by_id.insert(stored.id, at);
            if let Some(flight) = &stored.record.flight {
                self.by_flight.insert(flight.attempt, at);
            }
            self.all.push(stored);
        }
        self.others.extend(others);
    }

    pub(crate) fn find(&self, name: &Name) -> Option<&Stored> {
        let other = || {
            let id = self.others.iter().find(|(other, _)| other == name)?.1;
            self.by_id.get(&id)
        };
        let at = match name {
            Name::Key(key) => self.by_key.get(key),
            Name::Attempt(attempt) => self.by_flight.get(attempt).or_else(other),
            Name::TaskId(_) => other(),
        };
        at.map(|at| &self.all[*at])
    }
}

/// It may be the name of an attempt that ended, or of a task.
pub(crate) fn is_other(name: &Name) -> bool {
    !matches!(name, Name::Key(_))
}
