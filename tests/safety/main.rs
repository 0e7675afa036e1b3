//! What must not be harmed, whatever is there and whatever comes: files of others, at a start that is
//! refused and where somebody planted them.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod limits;
mod planted;
mod refused;
mod signals;
mod tree;
