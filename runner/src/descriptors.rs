//! The limit on open files: raised for a program that has many, but unchanged for the commands that it starts, because
//! programs that use select(), or close every possible descriptor, break or crawl with a high one.

use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// The limit that we were started with, if we raised it.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// Raises it to the highest that the system allows us.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let limit = INHERITED.get_or_init(|| limit);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "The limit on open files could not be raised.");
    }
}

/// Gives the calling process, which is about to become a command, the limit that we were started with. Called between
/// `fork` and `exec`: it takes no lock and allocates nothing.
pub(crate) fn restore() -> Result<(), Errno> {
    INHERITED.get().map_or(Ok(()), |limit| setrlimit(Resource::Nofile, *limit))
}
