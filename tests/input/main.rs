//! Fetcher files and the input directory.
#![allow(clippy::unwrap_used)]

mod check;
#[path = "../common/mod.rs"]
mod common;
mod directory;
mod files;
