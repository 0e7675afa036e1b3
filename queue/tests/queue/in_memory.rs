//! A reader of a queue in memory, as of one moment.

use std::convert::Infallible;
use std::sync::Mutex;

use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::look::{Look, Opens};
use shiftboss_queue::reader::ReadResult;
use shiftboss_queue::records::at_once;
use shiftboss_queue::testing::Memory;

pub struct Looking(Mutex<Memory>);

pub fn reader(store: &Memory) -> Looking {
    Looking(Mutex::new(store.clone()))
}

impl Opens for Looking {
    type Found = Memory;

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Memory>) -> Result<T, Infallible>,
    ) -> ReadResult<T> {
        let store = &mut *self.0.lock().unwrap();
        let Ok(answer) =
            at_once(async { question(&mut Look::at(store, now).await?).await }).unwrap();
        Ok(answer)
    }
}
