//! Lines of lists: a run lists a key, or no longer lists it (spec 2, 4).

use super::forget_task;
use crate::operation::Forgotten;
use crate::record::{FetcherId, ListRow, Record, Task};

/// Adds a line of a run; a new key waits since `since`. An existing row keeps its state, and takes the new payload; a
/// run that is new to the key arms its row.
pub fn add_row(
    record: &mut Record,
    (fetcher, run): (FetcherId, i64),
    reading: i64,
    since: i64,
    payload: String,
) {
    record.since.get_or_insert(since);
    let at = record.rows.binary_search_by_key(&(fetcher, run), |row| (row.fetcher, row.run));
    match at {
        Ok(at) => {
            let row = &mut record.rows[at];
            (row.reading, row.payload) = (reading, Some(payload));
        }
        Err(at) => {
            // The same run may have listed it before, and a job of that line may still be out.
            forget_task(record, Task::Row { fetcher, run });
            let armed = record.highest();
            let row = ListRow { fetcher, run, armed, reading, payload: Some(payload) };
            record.rows.insert(at, row);
        }
    }
}

/// The run no longer lists the key, or is deleted. Its job that is out goes on.
pub fn remove_row(record: &mut Record, (fetcher, run): (FetcherId, i64)) {
    record.rows.retain(|row| (row.fetcher, row.run) != (fetcher, run));
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
