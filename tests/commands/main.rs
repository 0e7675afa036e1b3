//! Ready-made workers and fetchers, and runs on change.
#![allow(clippy::unwrap_used)]

mod child;
#[path = "../common/mod.rs"]
mod common;
mod fetch;
mod fetchers;
mod long;
mod on_change;
mod output;
mod work;
