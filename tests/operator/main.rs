//! What operators see and say.
#![allow(clippy::unwrap_used)]

mod actions;
mod cli;
#[path = "../common/mod.rs"]
mod common;
mod follow;
mod front_page;
mod levers;
mod many;
mod metrics;
mod orders;
mod pages;
mod prometheus;
mod simulate;
mod status;
mod targets;
mod top;
mod transcripts;
mod views;
mod web;
mod web_limits;
