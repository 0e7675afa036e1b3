//! Times as the spool's JSON has them. Used by what is serialized.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serializer;

/// A time in whole seconds since 1970; what was before counts as 1970.
pub(super) fn unix_seconds<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// A time of so many milliseconds since 1970; none if the system's clock cannot say it.
pub(super) fn of_milliseconds(milliseconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds))
}
