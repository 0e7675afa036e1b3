//! What the log says of entries that were given back: one line for all of a pass, since a process that
//! was killed may have had thousands. Used by the reader; fsck tells of each.

use std::collections::BTreeMap;

use tracing::warn;

use super::reclaim::{Reclaimed, Why};

/// So many of a kind are named; the others are counted.
const NAMED_MAX: usize = 5;

/// One line for what one pass gave back; none for nothing.
pub(super) fn tell(given: &[Reclaimed]) {
    if given.is_empty() {
        return;
    }
    let mut counts = BTreeMap::<_, usize>::new();
    given.iter().for_each(|one| *counts.entry((whose(&one.why), way(one))).or_default() += 1);
    let which = listed(counts.iter().map(|((whose, way), count)| format!("{count} {whose} {way}")));
    let names = listed(given.iter().map(|one| format!("{} (attempt {})", one.name, one.attempts)));
    warn!(entries = given.len(), %which, %names, "Entries were given back.");
}

fn whose(why: &Why) -> String {
    match why {
        Why::OwnerDied(Some(owner)) => format!("of process {} on {}", owner.pid, owner.host),
        Why::OwnerDied(None) => "of a process without a record".to_owned(),
        Why::Due => "that were delayed and are due".to_owned(),
    }
}

fn way(given: &Reclaimed) -> String {
    if given.from == given.to {
        format!("to {}", given.to)
    } else {
        format!("from {} to {}", given.from, given.to)
    }
}

/// The first few, and how many more there are.
fn listed(mut all: impl ExactSizeIterator<Item = String>) -> String {
    let named = all.by_ref().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
