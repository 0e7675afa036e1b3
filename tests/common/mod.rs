//! What all black-box tests share: a place to run in, the built daemon, a worker's side of the
//! socket, a reader of the database, and waiting.
//!
//! Everything goes through the binary, its socket, its files and its signals; nothing here
//! reaches into the program. Each test file uses its own part of this.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part of it")]

pub mod child;
pub mod daemon;
pub mod disk;
pub mod left;
pub mod mounts;
pub mod random;
pub mod reference;
pub mod screen;
pub mod server;
pub mod site;
pub mod sql;
pub mod terminal;
pub mod unread;
pub mod wait;
pub mod worker;

pub use daemon::Daemon;
pub use site::Site;
pub use wait::{wait_equal, wait_until, wait_within};
pub use worker::Client;

/// The two ways of serving that every rule of the protocol must hold in; on a server there is one.
pub fn both_policies() -> &'static [&'static [&'static str]] {
    let on_server = std::env::var_os(server::VARIABLE).is_some();
    if on_server { &[&[]] } else { &[&[], &["--classic"]] }
}
