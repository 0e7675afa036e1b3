//! When a wrong token is answered. Whoever guesses waits for each guess, and no longer guesses faster by asking at once from many
//! connections or addresses. Pure: [`super::token`] waits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two wrong tokens of one address; how long the first one waits.
const PENALTY: Duration = Duration::from_secs(1);
/// Between two wrong tokens of all addresses together.
const PENALTY_OF_ALL: Duration = Duration::from_millis(100);
/// How long one waits at the most. It is less than a connection may be without progress.
pub(super) const PENALTY_MAX: Duration = Duration::from_secs(10);

/// When the last wrong tokens are answered.
#[derive(Default)]
pub(super) struct Penalties(Mutex<Turns>);

#[derive(Default)]
struct Turns {
    of_all: Option<Instant>,
    /// Those that are still to come: no more than fit into [`PENALTY_MAX`]. `None`: by a Unix socket.
    by_address: HashMap<Option<IpAddr>, Instant>,
}

impl Penalties {
    /// How long a wrong token that came now waits for its turn. `None`: too many wait already.
    pub(super) fn wait(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.by_address.retain(|_, at| *at > now);
        let address = address.map(network);
        let after = |last: Option<Instant>, penalty| last.unwrap_or(now).max(now) + penalty;
        let of_all = after(turns.of_all, PENALTY_OF_ALL);
        let turn = after(turns.by_address.get(&address).copied(), PENALTY).max(of_all);
        if turn > now + PENALTY_MAX {
            return None;
        }
        turns.of_all = Some(of_all);
        turns.by_address.insert(address, turn);
        Some(turn - now)
    }
}

/// One machine has all addresses of an IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses of one address take turns of a second, those of all of a tenth; others hardly wait, and time heals.
    #[test]
    fn guesses_take_turns() {
        let (penalties, now) = (Penalties::default(), Instant::now());
        let wait = |address: &str, after: Duration| {
            let address = Some(address.parse().unwrap());
            penalties.wait(address, now + after).map(|wait| wait.as_millis())
        };
        let storm: Vec<_> = (0..2_000).filter_map(|_| wait("10.0.0.1", Duration::ZERO)).collect();
        assert_eq!(storm, (1..=10).map(|turn| turn * 1_000).collect::<Vec<_>>());
        assert_eq!(wait("10.0.0.2", Duration::ZERO), Some(1_100));
        assert_eq!(wait("fe80::1", Duration::ZERO), Some(1_200));
        assert_eq!(wait("fe80::2", Duration::ZERO), Some(2_200), "it may be the same machine");
        let many = (0..255).filter_map(|last| wait(&format!("10.1.0.{last}"), Duration::ZERO));
        assert_eq!(many.max(), Some(10_000), "one in a tenth of a second");
        assert_eq!(wait("10.0.0.3", Duration::ZERO), None);
        assert_eq!(wait("10.0.0.1", PENALTY_MAX), Some(1_000));
    }
}
