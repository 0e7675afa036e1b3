//! The queue by itself: its statements, and random histories, over the store in memory.
#![allow(clippy::unwrap_used)]

mod classic;
mod histories;
mod model;
mod statements;
mod words;
