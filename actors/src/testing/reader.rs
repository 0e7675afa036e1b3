//! What the mock store answers to questions: what is next. Nothing else is asked of it.

use super::store::MockStore;
use crate::store::answers::{
    Ends, Found, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus, Stats, Tasks, Turn, Why,
};
use crate::store::{EndedAttempts, ReadError, ReadResult, Reader, StatsOf, TasksWith};
use shiftboss_protocol::model::{Key, UnixSeconds};

fn not_asked<T>() -> ReadResult<T> {
    Err(ReadError::Unavailable("the model is not asked that".to_owned()))
}

impl Reader for MockStore {
    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue> {
        Ok(self.inside().kept.model.preview(now, count))
    }

    fn status(&self, _: UnixSeconds) -> ReadResult<QueueStatus> {
        not_asked()
    }

    fn why(&self, _: UnixSeconds, _: &str, _: usize) -> ReadResult<Option<Why>> {
        not_asked()
    }

    fn ended_attempts(&self, _: &EndedAttempts) -> ReadResult<Log> {
        not_asked()
    }

    fn ends_after(&self, _: Option<i64>, _: usize) -> ReadResult<Ends> {
        not_asked()
    }

    fn tasks(&self, _: UnixSeconds, _: &TasksWith) -> ReadResult<Tasks> {
        not_asked()
    }

    fn jobs_by_minute(&self, _: UnixSeconds) -> ReadResult<Vec<MinuteJobs>> {
        not_asked()
    }

    fn stats(&self, _: &StatsOf) -> ReadResult<Stats> {
        not_asked()
    }

    fn search(&self, _: &str, _: usize) -> ReadResult<Found> {
        not_asked()
    }

    fn held(&self, _: usize) -> ReadResult<HeldKeys> {
        not_asked()
    }

    fn last_starts(&self) -> ReadResult<LastStarts> {
        not_asked()
    }

    fn turns(&self, _: UnixSeconds, _: &[Key]) -> ReadResult<Vec<Turn>> {
        not_asked()
    }
}
