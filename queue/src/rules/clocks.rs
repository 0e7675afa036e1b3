//! The wall clock was set: due times keep their distance, and a start in the future counts as just now.
//!
//! The recorded start stays as it is: only the key's place in the order changes.

use crate::context::Context;
use crate::record::Record;

/// Due times of the key follow the clock.
pub fn follow(record: &mut Record, context: &Context) {
    let extras = &mut record.extras;
    let hold = extras.hold.as_mut().and_then(|it| it.until.as_mut());
    let backoff = extras.backoff.as_mut().and_then(|it| it.until.as_mut());
    let retries = extras.retries.iter_mut().filter_map(|it| it.due.as_mut());
    for due in hold.into_iter().chain(backoff).chain(retries) {
        *due = context.followed(*due);
    }
}

/// If a clock that was ahead recorded a key's start, or since when it waits for its first one, the key's place is the
/// time when that is first noticed. So it gets its turns, however often this runs. This is for keys that have a
/// turn, or that another program started. Under `--classic` the key stays at its start.
pub fn look(record: &mut Record, context: &Context) {
    let now = context.seconds();
    let is_ahead = match record.stands_at() {
        Some(at) => at > now,
        None => record.since.is_some_and(|since| since > context.latest_since()),
    };
    if !context.settings.is_fair || !is_ahead {
        return;
    }
    if record.is_claimed || record.place(context).order.is_some() {
        match record.last {
            Some(_) => record.extras.ahead = Some(now),
            None => record.since = Some(context.next_since(0)),
        }
    }
}
