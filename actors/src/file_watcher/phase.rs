//! The state machine of a fetcher run: where it stands between its file and the store. Plain state; the
//! watcher's actor acts on it. The table is drawn in phases.md.

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

/// What may follow what, and why. Besides, a run that the store knows is `Deleting` once its file is gone, and
/// then it is a new run or none.
const TABLE: [(&str, &str, &str); 24] = [
    ("New", "Registering", "its file is there"),
    ("Complete", "Registering", "its file changed, or rests"),
    ("Idle", "Registering", "there is more"),
    ("Rejected", "Registering", "its file changed, or a minute is over"),
    ("Registering", "New", "the store is busy, or the directory is lost"),
    ("Registering", "Tailing", "registered"),
    ("Registering", "Queued", "too many tails"),
    ("Registering", "Complete", "read before"),
    ("Registering", "Elsewhere", "another daemon has its fetcher"),
    ("Elsewhere", "New", "a minute is over, or another run of its fetcher is there"),
    ("Stored", "Tailing", "its file is there"),
    ("Stored", "Queued", "too many tails"),
    ("Stored", "Complete", "read before"),
    ("Stored", "New", "the directory is lost, or its fetcher"),
    ("Queued", "Tailing", "a tail ended"),
    ("Queued", "New", "the directory is lost, or its fetcher, or the queue went back"),
    ("Tailing", "Complete", "read to the end"),
    ("Tailing", "Idle", "others wait"),
    ("Tailing", "Delayed", "it failed"),
    ("Tailing", "Rejected", "it failed too often"),
    ("Tailing", "New", "the directory is lost, or its fetcher, or the queue went back"),
    ("Complete", "New", "its fetcher is lost, or the queue went back"),
    ("Idle", "New", "its fetcher is lost, or the queue went back"),
    ("Delayed", "New", "the delay is over"),
];

impl Phase {
    /// As the table calls it.
    fn name(&self) -> String {
        format!("{self:?}").chars().take_while(|letter| letter.is_alphabetic()).collect()
    }

    /// Becomes `next`. That the table allows it is checked in debug builds: every test of the watcher is one
    /// of the table.
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

fn may_follow(from: &str, to: &str) -> bool {
    let listed = TABLE.iter().any(|(one, other, _)| (*one, *other) == (from, to));
    listed || (to == "Deleting" && from != "Deleting")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The picture in the document is the table.
    #[test]
    fn the_picture_is_the_table() {
        let mut drawn =
            "stateDiagram-v2\n    [*] --> New\n    [*] --> Stored\n    [*] --> Deleting\n"
                .to_owned();
        for (from, to, why) in TABLE {
            let _ = writeln!(drawn, "    {from} --> {to}: {why}");
        }
        drawn += "    Deleting --> [*]\n";
        assert!(include_str!("phases.md").contains(&drawn), "phases.md has not:\n{drawn}");
    }

    /// A run is registered before it is read, and nothing follows a deletion but a new run.
    #[test]
    fn what_may_not_follow() {
        for (from, to) in [
            ("New", "Tailing"),
            ("Complete", "Tailing"),
            ("Deleting", "New"),
            ("Deleting", "Deleting"),
        ] {
            assert!(!may_follow(from, to), "{from} {to}");
        }
        assert!(TABLE.iter().all(|(from, to, _)| from != to && may_follow(from, to)));
    }
}
