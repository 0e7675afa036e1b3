//! The orders that many keys can be given: the request for one key, what its answer says was done, and the sentences.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    Bump, BumpAnswer, Cancel, CancelAnswer, FetcherName, Forget, ForgetAnswer, Hold, HoldAnswer,
    Retry, RetryAnswer, RetryOf, Unhold, UnholdAnswer, Verb,
};
use shiftboss_queue::reader::Order;

use crate::text::{counted, shown};

/// A request about one key.
pub trait Each: Verb<Answer: DeserializeOwned> + Clone {
    fn key(&self) -> &Key;
    fn did(answer: &Self::Answer) -> Did;
}

/// What an answer says was done.
#[derive(Default)]
pub struct Did {
    /// False: there was nothing to do any more.
    changed: bool,
    /// Tasks that were put back, or deleted.
    tasks: u64,
    /// The same must be asked again.
    pub(super) has_more: bool,
    /// What was not done.
    refused: Option<&'static str>,
}

/// Has a key's tasks run again, those of one fetcher or all.
#[derive(Debug, Clone)]
pub struct Again(pub Key, pub Option<FetcherName>);

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(key, fetcher) = self.clone();
        match fetcher {
            Some(fetcher) => RetryOf { key, fetcher }.fmt(f),
            None => Retry { key }.fmt(f),
        }
    }
}

impl Verb for Again {
    const NAME: &'static str = Retry::NAME;
    type Answer = RetryAnswer;
}

impl Each for Again {
    fn key(&self) -> &Key {
        &self.0
    }

    fn did(answer: &RetryAnswer) -> Did {
        Did { changed: answer.rows > 0, tasks: answer.rows, ..Did::default() }
    }
}

impl Each for Cancel {
    fn key(&self) -> &Key {
        &self.key
    }

    fn did(answer: &CancelAnswer) -> Did {
        let refused =
            "one of its tasks is in flight and stays: cancel it again when that has ended";
        Did {
            changed: answer.deleted > 0,
            tasks: answer.deleted,
            has_more: answer.more,
            refused: (answer.in_flight && !answer.more).then_some(refused),
        }
    }
}

impl Each for Hold {
    fn key(&self) -> &Key {
        &self.key
    }

    fn did(_: &HoldAnswer) -> Did {
        Did { changed: true, ..Did::default() }
    }
}

impl Each for Unhold {
    fn key(&self) -> &Key {
        &self.key
    }

    fn did(answer: &UnholdAnswer) -> Did {
        Did { changed: answer.was_held, ..Did::default() }
    }
}

impl Each for Bump {
    fn key(&self) -> &Key {
        &self.key
    }

    fn did(_: &BumpAnswer) -> Did {
        Did { changed: true, ..Did::default() }
    }
}

impl Each for Forget {
    fn key(&self) -> &Key {
        &self.key
    }

    fn did(answer: &ForgetAnswer) -> Did {
        Did { changed: answer.forgotten, ..Did::default() }
    }
}

/// What came of many requests.
#[derive(Debug, Default)]
pub struct Done {
    pub keys: u64,
    pub tasks: u64,
    pub refused: u64,
    /// Keys of which more was left.
    with_more: BTreeSet<Key>,
}

impl Done {
    pub(super) fn add(&mut self, key: &Key, did: Did) {
        self.tasks += did.tasks;
        let is_first = match did.has_more {
            true => self.with_more.insert(key.clone()),
            false => !self.with_more.remove(key),
        };
        self.keys += u64::from(did.changed && is_first);
        if let Some(why) = did.refused {
            self.refuse(key, why);
        }
    }

    /// Names the key, unless nothing more is left of it.
    pub(super) fn refuse(&mut self, key: &Key, why: &str) {
        if !self.with_more.remove(key) {
            self.refused += 1;
            // There may be no reader.
            let _ = writeln!(io::stderr(), "shiftboss: {}: {why}", shown(key.as_str()));
        }
    }
}

/// What the order does to so many keys, or to so many failed tasks.
pub(super) fn infinitive(order: Order, count: u64) -> String {
    let keys = counted(count, "key");
    match order {
        Order::Hold => format!("hold {keys}"),
        Order::Unhold => format!("end the holds of {keys}"),
        Order::Cancel => format!("delete the single tasks of {keys}"),
        Order::Retry => format!("put the tasks of {keys} back in the queue"),
        Order::RetryFailed(_) => {
            format!("put {} back in the queue", counted(count, "failed task"))
        }
        Order::Bump => format!("bump {keys}"),
        Order::Forget => format!("forget {keys}"),
    }
}

pub(super) fn done(order: Order, keys: u64, tasks: u64) -> String {
    let keys = counted(keys, "key");
    match order {
        Order::Hold => format!("Held: {keys}."),
        Order::Unhold => {
            format!("No longer held: {keys}. What waits of them is at its old place.")
        }
        Order::Cancel => format!("Deleted {} of {keys}.", counted(tasks, "single task")),
        Order::Retry | Order::RetryFailed(_) => {
            format!("Back in the queue: {}.", counted(tasks, "task"))
        }
        Order::Bump => format!("Bumped: {keys}."),
        Order::Forget => format!("Forgotten: {keys}."),
    }
}
