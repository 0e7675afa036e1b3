//! The state machine of a fetcher run: where it stands between its file and the store. Plain state; the
//! watcher's actor acts on it. What may follow what is drawn in phases.md, and nowhere else.

use tokio::task::AbortHandle;

use crate::directory::FileState;
use shiftboss_queue::operation::StoredRun;

/// Where a run stands, with what belongs to that.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    New,
    /// The store is registering it.
    Registering,
    /// Known from an earlier daemon; its file was not looked at yet.
    Stored(StoredRun),
    /// Registered; waits until fewer tails are running.
    Queued(StoredRun),
    Tailing(AbortHandle),
    /// Its tail failed; a new one is started after a delay.
    Delayed,
    /// It was read to its end, when its file was so.
    Complete(Option<FileState>),
    /// All that is there was read, and others waited for a tail; read on when there is more.
    Idle(Option<FileState>),
    /// It failed too often; tried again when its file is no longer so.
    Rejected(Option<FileState>),
    /// Another daemon has its fetcher; tried again after a while.
    Elsewhere,
    /// Its rows are being deleted.
    Deleting,
}

impl Phase {
    /// As the picture calls it.
    fn name(&self) -> String {
        format!("{self:?}").chars().take_while(|letter| letter.is_alphabetic()).collect()
    }

    /// Becomes `next`. That the picture allows it is checked in debug builds: every test of the watcher is one
    /// of the picture.
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

/// Besides, a run that the store knows is `Deleting` once its file is gone.
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
