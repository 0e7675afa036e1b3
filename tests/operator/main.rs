//! What operators see and say.
#![allow(clippy::unwrap_used)]

mod actions;
mod backoff;
mod bumps;
mod cli;
#[path = "../common/mod.rs"]
mod common;
mod follow;
mod front_page;
mod holds;
mod metrics;
mod orders;
mod pages;
mod prometheus;
mod retries;
mod said;
mod status;
mod targets;
mod top;
mod views;
mod web;
mod web_limits;
