//! An engine that takes typed requests, as from the actors.

use shiftboss_protocol::model::{Key, LeaseHolder, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::MEMBER;
use shiftboss_queue::engine::{Engine, Own};
use shiftboss_queue::error::Rejected;
use shiftboss_queue::file_identity::Position;
use shiftboss_queue::operation::{
    AddRows, Dispatch, Dispatched, Operation, Outcome, Reading, RegisterRun, Request, RowBatch,
};
use shiftboss_queue::records::{Records, StoreResult};

use crate::subject::{self, Store};
use crate::words::{NOW, ready};

pub struct Asked {
    pub engine: Engine<Store>,
    settings: Settings,
    now: i64,
}

impl Asked {
    pub fn new(settings: Settings) -> Self {
        Self { engine: Engine::new(subject::new(), settings.clone()), settings, now: NOW * 1_000 }
    }

    pub fn over(store: Store) -> Self {
        let engine = Engine::new(store.reopened(), Settings::default());
        Self { engine, ..Self::new(Settings::default()) }
    }

    pub fn later(&mut self, seconds: i64) {
        self.now += seconds * 1_000;
    }

    /// A queue in which the daemon has a list of these keys.
    pub fn with(keys: &[&str]) -> Self {
        let mut queue = Self::new(Settings::default());
        queue.list("f", keys);
        queue
    }

    pub fn list(&mut self, fetcher: &str, keys: &[&str]) {
        self.ask(RegisterRun(run(fetcher, 1))).unwrap();
        self.ask(rows(fetcher, keys)).unwrap();
    }

    pub fn apply(&mut self, batch: Vec<Operation>) -> Vec<Result<Outcome, Rejected>> {
        ready(self.engine.apply(self.now, batch)).unwrap().into_iter().collect()
    }

    pub fn ask<R: Request>(&mut self, request: R) -> StoreResult<R::Answer> {
        let mut batch = Vec::new();
        request.push(&mut batch);
        let outcomes = ready(self.engine.apply(self.now, batch))?;
        R::answer(&mut outcomes.into_iter())
    }

    /// Restarts: the next daemon takes the queue over.
    pub fn restart(self) -> Self {
        let store = self.engine.into_store().reopened();
        Self { engine: Engine::new(store, self.settings.clone()), ..self }
    }

    /// The next daemon is started with these settings.
    pub fn with_settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// A daemon of this name takes the queue over, of several that share it.
    pub fn acts_for(self, name: &str, takeover: i64) -> Self {
        let mut queue = self.restart();
        let own = Own { name: MEMBER.of(name).into(), takeover };
        queue.engine = queue.engine.acting_for(own);
        queue
    }

    /// The store's documents with this prefix; the next daemon takes the queue over.
    pub fn documents(self, prefix: &str) -> (Self, Vec<(String, String)>) {
        let mut store = self.engine.into_store();
        let found = ready(store.documents(prefix)).unwrap();
        let engine = Engine::new(store.reopened(), self.settings.clone());
        (Self { engine, ..self }, found)
    }

    /// Hands out everything that waits, as `key payload`, sorted.
    pub fn jobs(&mut self) -> Vec<String> {
        let job = |queue: &mut Self| match queue
            .ask(Dispatch { holder: None, fetchers: None })
            .unwrap()
        {
            Dispatched::Job(_, row, _) => Some(format!("{} {}", row.key, row.payload)),
            _ => None,
        };
        let mut jobs: Vec<String> = std::iter::from_fn(|| job(self)).collect();
        jobs.sort_unstable();
        jobs
    }
}

pub fn run(fetcher: &str, started: i64) -> Run {
    Run { fetcher: fetcher.into(), started }
}

pub fn row(key: &str, payload: &str) -> Row {
    Row { key: Key::new(key).unwrap(), payload: payload.to_owned() }
}

/// Of the fetcher's first run.
pub fn rows(fetcher: &str, keys: &[&str]) -> AddRows {
    let rows = keys.iter().map(|key| row(key, "p")).collect();
    AddRows(RowBatch { rows, ..moved(fetcher, 0, Reading::Onward) })
}

/// A position of the fetcher's first run, without rows.
pub fn moved(fetcher: &str, offset: u64, reading: Reading) -> RowBatch {
    let position = Position { offset, ..Position::default() };
    RowBatch { position, reading, ..RowBatch::of(run(fetcher, 1), Vec::new()) }
}

pub fn lease() -> Dispatch {
    Dispatch { holder: Some(LeaseHolder { worker: "w".into(), lease_seconds: 60 }), fetchers: None }
}
