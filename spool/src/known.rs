//! What a reader knows to be in its queue, and which of it comes next. Used by the reader alone; it
//! touches no file.

use std::collections::{BTreeSet, VecDeque};

use super::files;
use super::name::EntryName;
use super::reader::Order;

/// The entries that a reader knows of.
#[derive(Debug)]
pub(super) enum Known {
    Strict(BTreeSet<EntryName>),
    /// In order, beginning anywhere.
    Spread(VecDeque<EntryName>),
}

impl Known {
    pub fn new(order: Order) -> Self {
        match order {
            Order::Strict => Self::Strict(BTreeSet::new()),
            Order::Spread => Self::Spread(VecDeque::new()),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Strict(names) => names.is_empty(),
            Self::Spread(names) => names.is_empty(),
        }
    }

    pub fn is_spread(&self) -> bool {
        matches!(self, Self::Spread(_))
    }

    /// All that is there, by a new listing.
    pub fn replace(&mut self, mut listed: Vec<EntryName>) {
        match self {
            Self::Strict(names) => *names = listed.into_iter().collect(),
            Self::Spread(names) => {
                listed.sort_unstable();
                *names = listed.into();
                self.missed();
            }
        }
    }

    /// One that arrived.
    pub fn add(&mut self, name: EntryName) {
        match self {
            Self::Strict(names) => _ = names.insert(name),
            Self::Spread(names) => names.push_back(name),
        }
    }

    /// The one to be tried next.
    pub fn next(&mut self) -> Option<EntryName> {
        match self {
            Self::Strict(names) => names.pop_first(),
            Self::Spread(names) => names.pop_front(),
        }
    }

    /// Somebody else was at this place: a reader that is spread goes to another.
    pub fn missed(&mut self) {
        if let Self::Spread(names) = self
            && !names.is_empty()
        {
            let places = names.len() as u64;
            names.rotate_left((files::random() % places) as usize);
        }
    }
}
