//! Records in flight stay in memory as they are in the database, because their ends come next. Used by the port; others
//! are read.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use shiftboss_protocol::model::{Attempt, Key};
use shiftboss_queue::records::{Name, Stored};

const FLIGHTS_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Flights {
    records: HashMap<Key, Box<Stored>, RandomState>,
    keys: HashMap<Attempt, Key, RandomState>,
}

impl Flights {
    /// Notes a record that was saved, if it is out.
    pub(crate) fn note(&mut self, stored: Stored) {
        if let Some(flight) = &stored.record.flight
            && self.records.len() < FLIGHTS_MAX
            && stored.record.is_whole()
        {
            let key = stored.record.key.clone();
            self.keys.insert(flight.attempt, key.clone());
            self.records.insert(key, Box::new(stored));
        }
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Stored> {
        match name {
            Name::Key(key) => self.records.get(key).map(|it| &**it),
            Name::Attempt(attempt) => self.records.get(self.keys.get(attempt)?).map(|it| &**it),
            Name::TaskId(_) => None,
        }
    }

    pub(crate) fn take(&mut self, name: &Name) -> Option<Stored> {
        match name {
            Name::Key(key) => self.take_key(key),
            Name::Attempt(attempt) => {
                let key = self.keys.remove(attempt)?;
                self.records.remove(&key).map(|it| *it)
            }
            Name::TaskId(_) => None,
        }
    }

    /// Takes a key's record out, because it is about to change.
    pub(crate) fn take_key(&mut self, key: &Key) -> Option<Stored> {
        let stored = self.records.remove(key)?;
        if let Some(flight) = &stored.record.flight {
            self.keys.remove(&flight.attempt);
        }
        Some(*stored)
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
    }
}
