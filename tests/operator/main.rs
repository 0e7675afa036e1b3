//! What operators see and say.
#![allow(clippy::unwrap_used)]

mod cli;
#[path = "../common/mod.rs"]
mod common;
mod metrics;
mod orders;
#[cfg(feature = "web")]
mod prometheus;
mod status;
mod targets;
mod views;
#[cfg(feature = "web")]
mod web;
