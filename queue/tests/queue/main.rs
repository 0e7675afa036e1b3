//! The queue by itself: its statements, and random histories, over a store: here in memory.
#![allow(clippy::unwrap_used)]

mod asked;
mod bounds;
mod extremes;
mod groups;
mod histories;
mod in_memory;
mod members;
mod model;
mod notes;
mod positions;
mod previews;
mod questions;
mod relays;
mod starts;
mod statements;
mod subject;
mod words;
