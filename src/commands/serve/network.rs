//! Says so when the daemon's own fetchers can reach no network because its unit has none, as the shipped one: they
//! would only fail, each in its own words.

use std::fs;

use rustix::net::{AddressFamily, SocketType, socket};
use tracing::warn;

use crate::config::FetcherTable;

/// What to do where a fetcher needs a network that the unit does not have.
pub(in crate::commands) const ADVICE: &str = "fetchers that use the network need the drop-in network.conf beside the unit (docs/configuration.md)";

/// Warns at a start with fetchers, in a unit of systemd's that has no network.
pub(super) fn warn_if_closed(fetchers: &[FetcherTable]) {
    let is_in_unit = std::env::var_os("INVOCATION_ID").is_some();
    let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    if is_in_unit && !fetchers.is_empty() && (is_loopback_alone(&interfaces) || !may_connect()) {
        warn!(fetchers = fetchers.len(), advice = ADVICE, "The daemon's unit has no network.");
    }
}

/// Whether a list of interfaces, as the kernel prints it, has the loopback and no other. Nothing is said of an
/// empty one: it could not be read.
fn is_loopback_alone(interfaces: &str) -> bool {
    let names = interfaces.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let names: Vec<&str> = names.collect();
    names == ["lo"]
}

fn may_connect() -> bool {
    socket(AddressFamily::INET, SocketType::DGRAM, None).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "Inter-|   Receive      |  Transmit\n face |bytes    packets |bytes    packets\n";

    /// A namespace of its own has the loopback and nothing else.
    #[test]
    fn the_loopback_alone_is_no_network() {
        let interfaces = |names: &[&str]| {
            let lines = names.iter().map(|name| format!("{name:>6}: 0 0 0 0\n"));
            is_loopback_alone(&(HEAD.to_owned() + &lines.collect::<String>()))
        };
        assert!(interfaces(&["lo"]));
        assert!(!interfaces(&["lo", "eth0"]) && !interfaces(&["wlan0"]));
        assert!(!is_loopback_alone(""));
    }
}
