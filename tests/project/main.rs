//! The source and the documents themselves.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod documents;
mod tidy;
