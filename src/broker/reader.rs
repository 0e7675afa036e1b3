//! What a relay answers operators who ask about the queue: that daemons know.
//!
//! Given to its connections in the place of a store's reader.

use shiftboss_protocol::model::{Key, UnixSeconds};
use shiftboss_queue::answers::{
    Ends, Found, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus, Stats, Tasks, Turn, Why,
};
use shiftboss_queue::reader::{EndedAttempts, ReadError, ReadResult, Reader, StatsOf, TasksWith};

/// See the module's documentation.
pub(super) struct RelayReader;

fn elsewhere<T>() -> ReadResult<T> {
    Err(ReadError::Unavailable(
        "a relay has no queue to look at: ask where the daemon runs that serves it".to_owned(),
    ))
}

impl Reader for RelayReader {
    fn status(&self, _: UnixSeconds) -> ReadResult<QueueStatus> {
        elsewhere()
    }

    fn why(&self, _: UnixSeconds, _: &str, _: usize) -> ReadResult<Option<Why>> {
        elsewhere()
    }

    fn next_jobs(&self, _: UnixSeconds, _: usize) -> ReadResult<Queue> {
        elsewhere()
    }

    fn ended_attempts(&self, _: &EndedAttempts) -> ReadResult<Log> {
        elsewhere()
    }

    fn ends_after(&self, _: Option<i64>, _: usize) -> ReadResult<Ends> {
        elsewhere()
    }

    fn tasks(&self, _: UnixSeconds, _: &TasksWith) -> ReadResult<Tasks> {
        elsewhere()
    }

    fn jobs_by_minute(&self, _: UnixSeconds) -> ReadResult<Vec<MinuteJobs>> {
        elsewhere()
    }

    fn stats(&self, _: &StatsOf) -> ReadResult<Stats> {
        elsewhere()
    }

    fn search(&self, _: &str, _: usize) -> ReadResult<Found> {
        elsewhere()
    }

    fn held(&self, _: usize) -> ReadResult<HeldKeys> {
        elsewhere()
    }

    fn last_starts(&self) -> ReadResult<LastStarts> {
        elsewhere()
    }

    fn turns(&self, _: UnixSeconds, _: &[Key]) -> ReadResult<Vec<Turn>> {
        elsewhere()
    }
}
