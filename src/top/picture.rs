//! What was found at one time, and what to look at: the plain data between the module that asks the queue
//! ([`look`](super::look)) and those that show it. Pure.

use shiftboss_protocol::answers::live::DaemonMetrics;
use shiftboss_protocol::answers::{GroupState, HeldKeys, MinuteJobs};

use super::commits::Commits;
use super::tabs::Tab;
use crate::view::health::Snapshot;
use crate::view::question::Listed;
use crate::view::table::Attempt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub tabs: Vec<Tab>,
    pub detail: Option<Detail>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    Why(String),
    Fetcher(String),
    Output(Attempt),
}

#[derive(Debug)]
pub struct Picture {
    pub snapshot: Snapshot,
    /// `None`: it was not available.
    pub metrics: Option<DaemonMetrics>,
    pub commits: Option<Commits>,
    pub minutes: Vec<MinuteJobs>,
    pub held: HeldKeys,
    /// Data that only some tabs show; only what was asked for.
    pub found: [Option<Listed>; Tab::ALL.len()],
    /// Lines of what a row leads to, with what it is.
    pub detail: Option<(Detail, Vec<String>)>,
}

impl Picture {
    /// A daemon runs, as far as that is known.
    pub fn has_daemon(&self) -> bool {
        !self.snapshot.up().is_down()
    }

    /// An operator holds the group, as far as that is listed.
    pub fn is_group_held(&self, name: Option<&str>) -> bool {
        let Some(Listed::Groups(found)) = &self.found[Tab::Groups as usize] else { return false };
        let mut groups = found.groups.iter();
        groups.any(|it| Some(&*it.group) == name && it.state == GroupState::Held)
    }
}
