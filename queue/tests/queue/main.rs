//! The queue by itself: its statements, and random histories, over a store: here in memory.
#![allow(clippy::unwrap_used)]

mod bounds;
mod classic;
mod extremes;
mod histories;
mod model;
mod statements;
mod subject;
mod words;
