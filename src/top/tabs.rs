//! The lists that there are, each a listing of [`view`](crate::view). Pure.

use shiftboss_queue::answers::TaskStatus;

use super::picture::Picture;
use crate::view::health::Up;
use crate::view::listings::{self, HeldSet};
use crate::view::machines;
use crate::view::table::Table;
use crate::view::turns::Turns;

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
}

impl Tab {
    pub const ALL: [Self; 8] = [
        Self::Fetchers,
        Self::InFlight,
        Self::Next,
        Self::Ended,
        Self::Delayed,
        Self::Held,
        Self::Failed,
        Self::DeadLetters,
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
        }
    }

    /// The tasks that it lists, if it is tasks.
    pub fn status(self) -> Option<TaskStatus> {
        match self {
            Self::Delayed => Some(TaskStatus::Delayed),
            Self::Failed => Some(TaskStatus::Failed),
            Self::DeadLetters => Some(TaskStatus::DeadLetter),
            _ => None,
        }
    }

    /// The one behind it, or before it, round and round.
    pub fn beside(self, is_next: bool) -> Self {
        let count = Self::ALL.len();
        Self::ALL[(self as usize + if is_next { 1 } else { count - 1 }) % count]
    }

    /// Its listing, in the order of the queue; `None`: it was not asked for.
    pub fn table(self, picture: &Picture) -> Option<Table> {
        let Picture { snapshot, lists, .. } = picture;
        let (queue, now) = (&snapshot.queue, snapshot.at);
        let held = lists.held.iter().flat_map(|held| &held.keys);
        let held: HeldSet<'_> = held.map(|held| &*held.key).collect();
        Some(match self {
            Self::Fetchers => {
                machines::fetchers(queue, Some(&lists.last_day.as_ref()?.groups), &[], now)
            }
            Self::InFlight => listings::in_flight(queue, &held, now),
            Self::Next => {
                let turns = Turns::of(queue, snapshot.up() == Up::Down);
                listings::next(lists.next.as_ref()?, &turns, now)
            }
            Self::Ended => listings::log(&lists.ended.as_ref()?.attempts, &held, now),
            Self::Held => listings::held(lists.held.as_ref()?, now),
            Self::Delayed | Self::Failed | Self::DeadLetters => {
                let tasks = lists.tasks.iter().find(|it| it.status == self.status())?;
                listings::tasks(tasks, &held, now)
            }
        })
    }
}
