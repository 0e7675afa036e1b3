//! What tests of the pages need: a daemon with its page ([`site`]), and a browser that is told what to do ([`browser`]).
//!
//! `make test-browser` builds the program first, and names it (`SHIFTBOSS`).
#![allow(clippy::unwrap_used)] // It is for tests.

pub mod browser;
pub mod site;
