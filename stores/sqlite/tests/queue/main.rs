//! The queue's own tests, over the store in a file; and what only a file can be.
#![allow(clippy::unwrap_used)]

#[path = "../../../../queue/tests/queue/bounds.rs"]
mod bounds;
#[path = "../../../../queue/tests/queue/classic.rs"]
mod classic;
mod damage;
#[path = "../../../../queue/tests/queue/extremes.rs"]
mod extremes;
#[path = "../../../../queue/tests/queue/histories.rs"]
mod histories;
#[path = "../../../../queue/tests/queue/model.rs"]
mod model;
mod previews;
mod questions;
#[path = "../../../../queue/tests/queue/statements.rs"]
mod statements;
mod subject;
#[path = "../../../../queue/tests/queue/words.rs"]
mod words;
