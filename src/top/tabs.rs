//! The lists that there are, each a listing of [`view`](crate::view). Pure.

use std::time::Duration;

use shiftboss_protocol::answers::TaskStatus;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::reader::{EndedAttempts, Grouping, StatsOf, TasksWith};

use super::picture::Picture;
use crate::view::listings::{self, HeldSet};
use crate::view::machines;
use crate::view::question::{Listed, Question, Turns};
use crate::view::table::Table;

pub const ROWS_MAX: usize = 1_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Fetchers,
    InFlight,
    Next,
    Ended,
    Delayed,
    Held,
    Failed,
    DeadLetters,
    Groups,
}

impl Tab {
    pub const ALL: [Self; 9] = [
        Self::Fetchers,
        Self::InFlight,
        Self::Next,
        Self::Ended,
        Self::Delayed,
        Self::Held,
        Self::Failed,
        Self::DeadLetters,
        Self::Groups,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fetchers => "Fetchers",
            Self::InFlight => "In flight",
            Self::Next => "Next",
            Self::Ended => "Ended",
            Self::Delayed => "Delayed",
            Self::Held => "Held",
            Self::Failed => "Failed",
            Self::DeadLetters => "Dead letters",
            Self::Groups => "Groups",
        }
    }

    /// The question of this tab; `None`: the status of the queue has the answer.
    pub fn question(self, now: UnixSeconds) -> Option<Question> {
        let status = match self {
            Self::Fetchers => {
                return Some(Question::Sums(StatsOf::last(DAY, Grouping::Fetcher, now)));
            }
            Self::InFlight => return None,
            Self::Next => return Some(Question::Next(ROWS_MAX)),
            Self::Ended => {
                let count = ROWS_MAX;
                return Some(Question::Log(EndedAttempts { count, ..EndedAttempts::default() }));
            }
            Self::Held => return Some(Question::Held(ROWS_MAX)),
            Self::Groups => return Some(Question::Groups(ROWS_MAX)),
            Self::Delayed => TaskStatus::Delayed,
            Self::Failed => TaskStatus::Failed,
            Self::DeadLetters => TaskStatus::DeadLetter,
        };
        let (status, count) = (Some(status), ROWS_MAX);
        Some(Question::Tasks(TasksWith { status, fetcher: None, group: None, since: None, count }))
    }

    /// The next tab, or the one before, cyclically; the last one is of groups.
    pub fn beside(self, is_next: bool, has_groups: bool) -> Self {
        let count = Self::ALL.len() - usize::from(!has_groups);
        Self::ALL[(self as usize + if is_next { 1 } else { count - 1 }) % count]
    }

    /// Its listing, in the order of the queue; `None`: it was not asked for.
    pub fn table(self, picture: &Picture) -> Option<Table> {
        let Picture { snapshot, held, found, .. } = picture;
        let (queue, now) = (&snapshot.queue, snapshot.at);
        let held: HeldSet<'_> = held.keys.iter().map(|held| &*held.key).collect();
        if self == Self::InFlight {
            return Some(listings::in_flight(queue, &held, now));
        }
        Some(match found[self as usize].as_ref()? {
            Listed::Sums(last_day) => {
                machines::fetchers(queue, Some(&last_day.groups), &[], snapshot.up(), now)
            }
            found => {
                let turns = Turns::of(queue, snapshot.up().is_down());
                found.table(&held, &turns, now)
            }
        })
    }
}
