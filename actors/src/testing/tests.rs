//! The store made of the model passes what every store must: it is what the others are compared with.

use std::sync::Arc;

use proptest::prelude::ProptestConfig;

use super::conformance::{QUESTIONS, Question, Subject, passes};
use super::one_by_one::OneByOne;
use super::{MockStore, Trouble};
use crate::store::{Operation, Reader, Store, StoreError};

impl Subject for MockStore {
    fn store(&mut self) -> &mut dyn Store {
        self
    }

    fn fail(&mut self, now: i64, batch: Vec<Operation>) {
        self.trouble("commit", Trouble::Error(StoreError::Full("disk".to_owned())));
        assert!(self.apply_at_once(now, batch).is_err());
    }

    fn restart(&mut self, _clean: bool) {}

    fn reader(&mut self) -> Arc<dyn Reader> {
        Arc::new(self.clone())
    }

    fn questions(&self) -> &'static [Question] {
        &QUESTIONS[..1]
    }
}

#[test]
fn the_mock_conforms() {
    passes(ProptestConfig::with_cases(100), MockStore::new);
}
