//! Workers that are connected with protocol 2, and when each gave its last sign of life; `status` shows them.
//!
//! A connection takes a [`Seat`] with its first request for work, and leaves it when it ends. All
//! connections are on one thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;

use shiftboss_protocol::answers::live::ConnectedWorker;

const NAMES_MAX: usize = 1_000;

/// The connected workers; clones share them.
#[derive(Clone, Default)]
pub(super) struct Workers(Rc<RefCell<BTreeMap<u64, Seen>>>);

type Seen = (Arc<str>, Instant);

pub(super) struct Seat {
    workers: Workers,
    number: u64,
}

impl Workers {
    pub(super) fn seat(&self, worker: &Arc<str>) -> Seat {
        let mut seats = self.0.borrow_mut();
        let number = seats.last_key_value().map_or(0, |(number, _)| number + 1);
        seats.insert(number, (Arc::clone(worker), Instant::now()));
        Seat { workers: self.clone(), number }
    }

    pub(super) fn connected(&self) -> Vec<ConnectedWorker> {
        let mut by_name: BTreeMap<Arc<str>, (u64, u64)> = BTreeMap::new();
        for (worker, seen) in self.0.borrow().values() {
            let silent = seen.elapsed().as_secs();
            let known = by_name.entry(Arc::clone(worker)).or_insert((0, silent));
            *known = (known.0 + 1, known.1.min(silent));
        }
        let worker = |(name, (connections, silent_seconds)): (Arc<str>, _)| ConnectedWorker {
            name: name.to_string(),
            connections,
            silent_seconds,
        };
        by_name.into_iter().take(NAMES_MAX).map(worker).collect()
    }
}

impl Seat {
    pub(super) fn seen(&self) {
        if let Some((_, seen)) = self.workers.0.borrow_mut().get_mut(&self.number) {
            *seen = Instant::now();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.workers.0.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Connections with one name are one worker; its last sign of life is the latest of theirs.
    #[actix::test]
    async fn workers_come_and_go() {
        tokio::time::pause();
        let workers = Workers::default();
        let [first, second, other] = ["w", "w", "v"].map(|name| workers.seat(&name.into()));
        tokio::time::advance(Duration::from_secs(7)).await;
        second.seen();
        tokio::time::advance(Duration::from_secs(2)).await;
        let worker = |name: &str, connections, silent_seconds| ConnectedWorker {
            name: name.to_owned(),
            connections,
            silent_seconds,
        };
        assert_eq!(workers.connected(), [worker("v", 1, 9), worker("w", 2, 2)]);
        drop((second, other));
        let third = workers.seat(&"w".into());
        assert_eq!(workers.connected(), [worker("w", 2, 0)]);
        drop((first, third));
        assert_eq!(workers.connected(), []);
    }
}
