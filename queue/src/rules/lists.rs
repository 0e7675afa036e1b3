//! Lines of lists: a run lists a key, or no longer lists it (spec 2, 4).

use shiftboss_protocol::model::UnixSeconds;

use super::forget_task;
use crate::context::Context;
use crate::groups::GroupId;
use crate::operation::Forgotten;
use crate::record::{FetcherId, ListRow, Record, Task};

/// Adds a line of a run; a new key waits since `since`. An existing row keeps its state, and takes the new payload; a
/// run that is new to the key arms its row.
pub fn add_row(
    record: &mut Record,
    (fetcher, run): (FetcherId, i64),
    (reading, since): (i64, i64),
    payload: String,
    group: Option<GroupId>,
) {
    record.since.get_or_insert(since);
    let at = record.rows.binary_search_by_key(&(fetcher, run), |row| (row.fetcher, row.run));
    match at {
        Ok(at) => {
            let row = &mut record.rows[at];
            (row.reading, row.payload, row.group) = (reading, Some(payload), group);
        }
        Err(at) => {
            // The same run may have listed it before, and a job of that line may still be out.
            forget_task(record, Task::Row { fetcher, run });
            let armed = record.highest();
            let row = ListRow { fetcher, run, armed, reading, group, payload: Some(payload) };
            record.rows.insert(at, row);
        }
    }
}

/// The run no longer lists the key, or is deleted. Its job that is out goes on.
pub fn remove_row(record: &mut Record, (fetcher, run): (FetcherId, i64)) {
    record.rows.retain(|row| (row.fetcher, row.run) != (fetcher, run));
}

/// Whether nothing lists the key, and it has not run since that time, or, if it never ran, not come into the queue.
pub fn is_old(record: &Record, since: UnixSeconds, context: &Context) -> bool {
    let ran = record.last.map(|last| last.started.max(last.finished.unwrap_or(last.started)));
    let came = record.since.map(|it| it.div_euclid(1_000_000));
    let is_unlisted = record.is_unlisted() && !record.is_in_flight(context);
    is_unlisted && ran.or(came).is_none_or(|last| last < since)
}

/// Whether everything known of the key may be forgotten.
pub fn forget(record: &Record) -> Forgotten {
    if record.is_listed() {
        Forgotten::Listed
    } else if record.flight.is_some() {
        Forgotten::InFlight
    } else {
        Forgotten::Forgotten
    }
}
