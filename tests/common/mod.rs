//! What all black-box tests share: a place to run in, the built daemon, a worker's side of the
//! socket, a reader of the database, and waiting.
//!
//! Everything goes through the binary, its socket, its files and its signals; nothing here
//! reaches into the program. Each test file uses its own part of this.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test file uses its own part of it"
)]

pub mod daemon;
pub mod disk;
pub mod left;
pub mod mounts;
pub mod nobody;
pub mod random;
pub mod reference;
pub mod said;
pub mod screen;
pub mod server;
pub mod site;
pub mod sql;
pub mod terminal;
pub mod unread;
pub mod wait;
pub mod worker;

pub use daemon::Daemon;
pub use site::{Peer, Site};
pub use wait::{wait_equal, wait_until, wait_within};
pub use worker::{Client, attempt_of, job_of};

/// A list of so many keys, `key0` and on.
pub fn list_of(count: usize) -> String {
    (0..count).map(|at| format!("key{at} 0 {at}\n")).collect()
}

/// The two ways of serving that every rule of the protocol must hold in; on a server there is one.
pub fn both_policies() -> &'static [&'static [&'static str]] {
    let on_server = std::env::var_os(server::VARIABLE).is_some();
    if on_server { &[&[]] } else { &[&[], &["--classic"]] }
}

/// Ends a test that only root can run: elsewhere the rest of it is not tested, and in CI that is an error.
macro_rules! root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOT TESTED: this needs root");
            assert!(std::env::var_os("CI").is_none(), "in CI the tests are run by root");
            return;
        }
    };
}
pub(crate) use root;
