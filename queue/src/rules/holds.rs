//! Keys that are kept from being handed out: by an operator, or because their jobs fail repeatedly. Also what becomes
//! due.

use std::sync::Arc;

use super::{clocks, retries};
use crate::context::Context;
use crate::record::{Backoff, Due, Hold, Record};

/// An operator holds the key; this replaces an earlier hold. A job that is out goes on.
pub fn hold(
    record: &mut Record,
    seconds: Option<u32>,
    reason: String,
    by: Arc<str>,
    context: &Context,
) {
    let until = seconds.map(|seconds| context.due_in(seconds.into()));
    record.extras.hold = Some(Hold { since: context.seconds(), until, reason, by });
}

/// Ends any hold of the key; returns whether there was one. Failures in a row still count.
pub fn unhold(record: &mut Record) -> bool {
    let backed_off = record.extras.backoff.as_mut().and_then(|it| it.until.take());
    record.extras.hold.take().is_some() | backed_off.is_some()
}

/// A job of the key ended with this code, and its task is not retried automatically.
pub(super) fn count_end(record: &mut Record, exit_code: i64, context: &Context) {
    let rule = context.settings.backoff.as_ref().filter(|_| context.settings.is_fair);
    let Some(rule) = rule.filter(|rule| rule.on.counts(exit_code)) else {
        record.extras.backoff = None;
        return;
    };
    let failures = record.extras.backoff.map_or(0, |it| it.failures).saturating_add(1);
    let seconds = rule.delay(record.key.as_str(), failures.into());
    let until = seconds.map(|seconds| context.due_in(seconds));
    record.extras.backoff = Some(Backoff { failures, until });
}

/// Handles what is due: holds end, delayed tasks wait again.
pub fn wake(record: &mut Record, context: &mut Context) {
    clocks::follow(record, context);
    let now = context.now;
    let is_over = |due: Option<Due>| due.is_some_and(|due| due.is_over(now));
    if record.extras.hold.as_ref().is_some_and(|it| is_over(it.until)) {
        record.extras.hold = None;
    }
    if context.settings.backoff.is_none() {
        // A rule that no longer exists holds no keys, and counting begins anew.
        record.extras.backoff = None;
    } else if let Some(backoff) = &mut record.extras.backoff
        && is_over(backoff.until)
    {
        backoff.until = None;
    }
    retries::wake(record, context);
}
