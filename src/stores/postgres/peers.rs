//! Which of the other daemons are dead, judged by counters that they raise while they live.
//!
//! Asked by the [`companion`](super::companion) after each look. Times are from this daemon's own clock, which goes on
//! while its machine sleeps: clocks of machines may differ. A daemon that wants a name, and `shiftboss forget
//! --daemon`, [wait](wait_out) for one counter.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::documents::Gone;
use shiftboss_queue::error::StoreResult;
use tokio::time::sleep;

/// A counter that stood still over this many looks, one a second...
const LOOKS: u32 = 5;
/// ...and for this long is a dead daemon's. Looks count so that a frozen server does not make all daemons dead.
const STILL: Duration = Duration::from_secs(5);

/// Looks, one a second, over which the counter must have stood still. The second one comes soon: the server may not
/// have noticed yet that a process has ended.
const OWN_LOOKS: u32 = 7;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const SECOND_LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) daemon: i64,
    /// As its document is named.
    pub(super) member: Arc<str>,
    pub(super) epoch: i64,
    pub(super) beat: i64,
    /// It need not be waited for.
    pub(super) gone: Option<Gone>,
    /// When it was gone, or gave its last sign of life, by the server's clock.
    pub(super) seen: UnixSeconds,
}

#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<i64, Seen>);

#[derive(Debug)]
struct Seen {
    at: (i64, i64),
    since: Duration,
    looks: u32,
}

impl Peers {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Notes the counters seen at a time; returns the daemons that are dead by now.
    pub(super) fn look(&mut self, now: Duration, peers: &[Peer]) -> Vec<Peer> {
        self.0.retain(|daemon, _| peers.iter().any(|peer| peer.daemon == *daemon));
        peers.iter().filter(|peer| self.is_dead(now, peer)).cloned().collect()
    }

    fn is_dead(&mut self, now: Duration, peer: &Peer) -> bool {
        let at = (peer.epoch, peer.beat);
        let seen = self.0.entry(peer.daemon).or_insert(Seen { at, since: now, looks: 0 });
        if seen.at != at {
            *seen = Seen { at, since: now, looks: 0 };
        }
        seen.looks += 1;
        peer.gone.is_some() || seen.looks > LOOKS && now.saturating_sub(seen.since) >= STILL
    }
}

/// The answer to a look.
pub(super) enum Asked<T> {
    Had(T),
    /// A daemon has it: who, and its counter.
    Taken(String, i64),
}

/// Calls `ask` until it succeeds, or the counter moves: then returns who has the name. `ask` gets the counter once that
/// has stood still for long enough.
pub(super) async fn wait_out<T>(
    mut ask: impl AsyncFnMut(Option<i64>) -> StoreResult<Asked<T>>,
) -> StoreResult<Result<T, String>> {
    let (mut looks, mut last) = (0, None);
    loop {
        let (holder, beat) = match ask(last.filter(|_| looks >= OWN_LOOKS)).await? {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(beat: i64) -> Peer {
        Peer { daemon: 7, member: "member/m".into(), epoch: 1, beat, gone: None, seen: 0 }
    }

    /// The times, in milliseconds, at which a daemon with these beats counts as dead.
    fn deaths(looks: &[(u64, i64)]) -> Vec<u64> {
        let mut peers = Peers::default();
        let is_dead = |(at, beat): &&(u64, i64)| {
            !peers.look(Duration::from_millis(*at), &[peer(*beat)]).is_empty()
        };
        looks.iter().filter(is_dead).map(|(at, _)| *at).collect()
    }

    /// Five looks and five seconds after its last beat, whichever is later.
    #[test]
    fn a_daemon_is_dead_when_its_counter_stands_still() {
        let each_second: Vec<_> =
            (0..9).map(|second| (second * 1_000, (second as i64).min(2))).collect();
        assert_eq!(deaths(&each_second), [7_000, 8_000]);
        let quick: Vec<_> = (0..60).map(|tenth| (tenth * 100, 0)).collect();
        assert_eq!(deaths(&quick).first(), Some(&5_000));
    }

    /// A minute without looks does not count as a minute of silence.
    #[test]
    fn a_server_that_was_frozen_makes_nobody_dead() {
        let looks = [(0, 1), (60_000, 1), (61_000, 1), (62_000, 1), (63_000, 1), (64_000, 2)];
        assert!(deaths(&looks).is_empty());
    }

    /// One that was stopped is not waited for.
    #[test]
    fn a_stopped_daemon_is_adopted_at_once() {
        let stopped = Peer { gone: Some(Gone::Stopped), ..peer(3) };
        assert_eq!(
            Peers::default().look(Duration::ZERO, std::slice::from_ref(&stopped)),
            std::slice::from_ref(&stopped)
        );
    }
}
