//! Asks for what a daemon has that may be dead: it is had when its counter has stood still for a few looks.
//!
//! For a daemon that wants a name, and for `shiftboss forget --daemon`. Living daemons judge each other in
//! [`peers`](super::peers).

use std::time::Duration;

use shiftboss_queue::error::StoreResult;
use tokio::time::sleep;

/// Looks, one a second, over which the counter must have stood still. The second one comes soon: the server may not have noticed
/// yet that somebody has ended.
const LOOKS: u32 = 7;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// The answer to a look.
pub(super) enum Asked<T> {
    Had(T),
    /// A daemon has it: who, and its counter.
    Taken(String, i64),
}

/// Asks until it is had, or the counter goes on: then who has it. `ask` gets the counter that stood still, once it has for
/// long enough.
pub(super) async fn wait_out<T>(
    mut ask: impl AsyncFnMut(Option<i64>) -> StoreResult<Asked<T>>,
) -> StoreResult<Result<T, String>> {
    let (mut looks, mut last) = (0, None);
    loop {
        let (holder, beat) = match ask(last.filter(|_| looks >= LOOKS)).await? {
            Asked::Had(it) => return Ok(Ok(it)),
            Asked::Taken(holder, beat) => (holder, beat),
        };
        if last.is_some_and(|last| last != beat) {
            return Ok(Err(holder));
        }
        (looks, last) = (looks + 1, Some(beat));
        sleep(if looks == 1 { SECOND_LOOK } else { LOOK_EVERY }).await;
    }
}
