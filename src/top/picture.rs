//! What was found at one time, and what is to be looked at: the plain data between who asks the queue ([`look`](super::look)) and
//! what shows it. Pure.

use shiftboss_actors::live::DaemonMetrics;
use shiftboss_queue::answers::{HeldKeys, Log, MinuteJobs, Queue, Stats, Tasks};

use super::commits::Commits;
use super::tabs::Tab;
use crate::view::health::{Snapshot, Up};
use crate::view::table::Attempt;

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub tabs: Vec<Tab>,
    pub detail: Option<Detail>,
}

/// What one row leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    Why(String),
    Fetcher(String),
    Output(Attempt),
}

/// What was found, at one time.
#[derive(Debug)]
pub struct Picture {
    pub snapshot: Snapshot,
    /// `None`: it was not to be had.
    pub metrics: Option<DaemonMetrics>,
    pub commits: Option<Commits>,
    pub minutes: Vec<MinuteJobs>,
    pub lists: Lists,
    /// Lines of what a row leads to, with what it is.
    pub detail: Option<(Detail, Vec<String>)>,
}

/// What only some tabs show; what was not asked for is missing.
#[derive(Debug, Default)]
pub struct Lists {
    pub last_day: Option<Stats>,
    pub next: Option<Queue>,
    pub ended: Option<Log>,
    pub held: Option<HeldKeys>,
    pub tasks: Vec<Tasks>,
}

impl Lists {
    /// Takes over what is missing.
    pub fn complete_from(&mut self, other: Self) {
        let Self { last_day, next, ended, held, tasks } = other;
        self.last_day = self.last_day.take().or(last_day);
        self.next = self.next.take().or(next);
        self.ended = self.ended.take().or(ended);
        self.held = self.held.take().or(held);
        let is_new = |new: &Tasks| self.tasks.iter().all(|known| known.status != new.status);
        let new: Vec<Tasks> = tasks.into_iter().filter(is_new).collect();
        self.tasks.extend(new);
    }
}

impl Picture {
    /// A daemon runs, as far as that is known.
    pub fn has_daemon(&self) -> bool {
        self.snapshot.up() != Up::Down
    }
}
