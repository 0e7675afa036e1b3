//! What operators see and say.
#![allow(clippy::unwrap_used)]

mod cli;
#[path = "../common/mod.rs"]
mod common;
mod metrics;
mod orders;
mod status;
mod targets;
mod views;
