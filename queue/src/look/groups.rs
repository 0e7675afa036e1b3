//! Groups, and which of them are open: the question of `groups`, and what `status` and `why` say of them.

use super::Look;
use crate::code;
use crate::groups::GroupId;
use crate::listings::{GroupSeen, Listings};
use crate::record::{Millis, seconds};
use crate::rules::groups::{Group, Hold};
use crate::waits;
use shiftboss_protocol::answers::{GroupCount, GroupRow, GroupState, Groups};

/// Most groups that one question returns.
const GROUPS_MAX: usize = 10_000;

impl<S: Listings> Look<'_, S> {
    pub(super) async fn groups(&mut self, count: usize) -> Result<Groups, S::Error> {
        let count = count.min(GROUPS_MAX);
        let mut groups = Vec::new();
        for state in GroupState::ALL {
            let left = count + 1 - groups.len();
            let found = self.store.groups(kind(state), left).await?;
            groups.extend(found.iter().map(|it| self.group_row(it)));
        }
        let truncated = groups.len() > count;
        groups.truncate(count);
        Ok(Groups { counts: self.group_counts().await?, groups, truncated })
    }

    pub(super) async fn group_counts(&mut self) -> Result<Vec<GroupCount>, S::Error> {
        let found = self.store.group_counts().await?;
        let count = |state| {
            let (_, groups, waiting) = found.iter().find(|it| it.0 == kind(state))?;
            Some(GroupCount { state, groups: *groups, waiting: *waiting })
        };
        Ok(GroupState::ALL.into_iter().filter_map(count).collect())
    }

    pub(super) async fn group_of(&mut self, id: GroupId) -> Result<Option<GroupRow>, S::Error> {
        if let Some(known) = self.groups.get(&id) {
            return Ok(known.clone());
        }
        let found = self.store.group(id).await?.map(|it| self.group_row(&it));
        self.groups.insert(id, found.clone());
        Ok(found)
    }

    /// Why a task of the group waits; `None`: not for it.
    pub(super) async fn closed(&mut self, id: GroupId) -> Result<Option<String>, S::Error> {
        let group = self.group_of(id).await?;
        let closed = group.and_then(|it| waits::closed(&it, self.context.seconds()));
        Ok(closed.map(|closed| format!("its group {closed}")))
    }

    fn group_row(&self, GroupSeen { group, kind, opens }: &GroupSeen) -> GroupRow {
        let steady = self.context.steady();
        let state = GroupState::ALL.into_iter().find(|it| self::kind(*it) == *kind);
        // What time has opened is noted by the next hand-out.
        let is_due = opens.is_some_and(|opens| opens <= steady);
        let state = state.filter(|_| !is_due).unwrap_or(GroupState::Open);
        // A hold may end before what else closes the group.
        let held = group.hold.as_ref().filter(|it| !it.is_over(steady));
        let state = match state {
            GroupState::Held if held.is_none() => GroupState::Delayed,
            state => state,
        };
        let is_timed = matches!(state, GroupState::Delayed | GroupState::Held);
        let opens = opens.filter(|_| is_timed);
        GroupRow {
            group: group.name.to_string(),
            state,
            waiting: group.waiting,
            in_flight: group.in_flight,
            opens: opens.map(|at| seconds(at.saturating_add(self.context.clock))),
            reason: reason(group, held, steady),
        }
    }
}

fn kind(state: GroupState) -> i64 {
    match state {
        GroupState::Open => code::OPEN,
        GroupState::Delayed => code::DELAYED,
        GroupState::Full => code::FULL,
        GroupState::Held => code::HELD_GROUP,
    }
}

fn reason(group: &Group, held: Option<&Hold>, steady: Millis) -> String {
    let is_paused = group.pause.is_some_and(|(since, lasts)| since.saturating_add(lasts) > steady);
    match held {
        Some(Hold { by, reason, .. }) if reason.is_empty() => format!("held by {by}"),
        Some(Hold { by, reason, .. }) => format!("held by {by}: {reason}"),
        None if is_paused => "a worker asked for a pause".to_owned(),
        None => String::new(),
    }
}
