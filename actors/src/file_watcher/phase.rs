//! The state machine of a fetcher run: where it stands between its file and the store. Plain state; the watcher's actor
//! acts on it. Only phases.md defines which phase may follow which.

use tokio::task::AbortHandle;

use crate::directory::FileState;
use shiftboss_queue::operation::StoredRun;

/// Where a run stands, with the data of that phase.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    New,
    Registering,
    /// Known from an earlier daemon; its file has not been looked at yet.
    Stored(StoredRun),
    /// Registered; waits until fewer tails are running.
    Queued(StoredRun),
    Tailing(AbortHandle),
    /// Its tail failed; a new one is started after a delay.
    Delayed,
    /// It was read to its end when its file was in this state.
    Complete(Option<FileState>),
    /// All that was there was read, and the tail was ended because others waited for one; read on when there is more.
    Idle(Option<FileState>),
    /// It failed too often; tried again when its file is no longer in this state.
    Rejected(Option<FileState>),
    /// Another daemon has its fetcher; tried again after a while.
    Elsewhere,
    Deleting,
}

impl Phase {
    /// Its name in the diagram.
    fn name(&self) -> String {
        format!("{self:?}").chars().take_while(|letter| letter.is_alphabetic()).collect()
    }

    /// Becomes `next`. Debug builds check that the diagram allows it: so every test of the watcher also tests the
    /// diagram.
    pub(super) fn enter(&mut self, next: Self) {
        debug_assert!(may_follow(&self.name(), &next.name()), "{self:?} became {next:?}");
        *self = next;
    }

    pub(super) fn stop_tail(&self) {
        if let Self::Tailing(tail) = self {
            tail.abort();
        }
    }
}

/// What the diagram leaves out: a run that the store knows becomes `Deleting` once its file is gone.
fn may_follow(from: &str, to: &str) -> bool {
    let is_drawn = include_str!("phases.md").contains(&format!("\n    {from} --> {to}: "));
    is_drawn || (to == "Deleting" && from != "Deleting")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run is registered before it is read, and nothing follows a deletion but a new run.
    #[test]
    fn what_may_not_follow() {
        assert!(may_follow("New", "Registering") && may_follow("Tailing", "Deleting"));
        for (from, to) in [
            ("New", "Tailing"),
            ("Complete", "Tailing"),
            ("Deleting", "New"),
            ("Deleting", "Deleting"),
        ] {
            assert!(!may_follow(from, to), "{from} {to}");
        }
    }
}
