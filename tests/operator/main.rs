//! What operators see and say.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "web")]
mod actions;
mod backoff;
mod bumps;
mod cli;
#[path = "../common/mod.rs"]
mod common;
mod follow;
#[cfg(feature = "web")]
mod front_page;
mod holds;
mod metrics;
mod orders;
#[cfg(feature = "web")]
mod pages;
#[cfg(feature = "web")]
mod prometheus;
mod retries;
mod said;
mod status;
mod targets;
#[cfg(feature = "top")]
mod top;
mod views;
#[cfg(feature = "web")]
mod web;
#[cfg(feature = "web")]
mod web_limits;
