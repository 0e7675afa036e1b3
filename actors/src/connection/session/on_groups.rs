//! Operators' orders about one group: to close it, to open it again.

use std::sync::Arc;

use tracing::info;

use super::{Answered, Asker};
use crate::storage::messages::Perform;
use shiftboss_protocol::verbs::{self, HoldGroupAnswer, Name, UnholdGroupAnswer};
use shiftboss_protocol::wire::session::Refused;
use shiftboss_queue::operation::{HeldGroup, HoldGroup, UnholdGroup};

const UNKNOWN: &str = "no [[group]] of the configuration has such groups, and no task is in it: a group is named as `groups` lists it, like host:example.org";

impl Asker {
    pub(super) async fn hold_group(&self, asked: verbs::HoldGroup) -> Answered<verbs::HoldGroup> {
        let verbs::HoldGroup { group, seconds, reason } = asked;
        let (by, reason) = (Arc::clone(&self.holder.worker), reason.into_text());
        let hold = HoldGroup { group: group.shared(), seconds: seconds.seconds(), reason, by };
        match self.ask(Perform(hold)).await? {
            HeldGroup::Held { until, replaced, tasks } => {
                info!(%group, by = &*self.holder.worker, "An operator holds a group.");
                Ok(HoldGroupAnswer { group: group.to_string(), until, replaced, tasks })
            }
            HeldGroup::Unknown => Err(Refused::unknown(UNKNOWN)),
        }
    }

    pub(super) async fn unhold_group(&self, group: Name) -> Answered<verbs::UnholdGroup> {
        let was_held = self.ask(Perform(UnholdGroup(group.shared()))).await?;
        info!(%group, by = &*self.holder.worker, "An operator ends the hold of a group.");
        Ok(UnholdGroupAnswer { group: group.to_string(), was_held })
    }
}
