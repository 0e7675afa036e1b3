//! What goes over the socket, over the built daemon.
#![allow(clippy::unwrap_used)]

mod abuse;
mod ask;
mod classic;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod delivery;
mod single_tasks;
mod version2;
