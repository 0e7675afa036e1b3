//! Protocol 2 over the built daemon (docs/protocol.md).

mod attempts;
mod both;
mod client;
mod operators;
mod waiting;

use crate::common::{Daemon, Site};

/// A daemon with jobs for these keys.
fn with_jobs(keys: &[&str], options: &[&str]) -> (Site, Daemon) {
    Site::serving(&keys.iter().map(|key| format!("{key} 1\n")).collect::<String>(), options)
}
