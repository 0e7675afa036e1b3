//! `shiftboss serve --spool` as a user runs it.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod serve;
mod serve_full;
