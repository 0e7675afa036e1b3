//! What commands leave behind: lines in files of the site's directory, and processes.

use std::fmt::Display;
use std::fs;

use super::{Site, wait_until};

/// Lines of a file in the site's directory, sorted; none if it is not there.
pub fn lines(site: &Site, name: &str) -> Vec<String> {
    let text = fs::read_to_string(site.path(name)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Waits until a file has so many lines, or more.
pub fn wait_lines(site: &Site, name: &str, count: usize) {
    wait_until(&format!("{name} has {count} lines"), || lines(site, name).len() >= count);
}

/// Whether a process runs; one that has ended and was not reaped does not.
pub fn is_running(pid: impl Display) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Waits until a process does not run any longer.
pub fn wait_ended(pid: impl Display) {
    wait_until("the process is gone", || !is_running(&pid));
}

/// Waits until none of the processes runs whose ids are in a file.
pub fn wait_gone(site: &Site, name: &str) {
    let pids = lines(site, name);
    assert!(!pids.is_empty());
    wait_until("the commands are gone", || !pids.iter().any(is_running));
}
