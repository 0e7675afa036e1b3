//! The queue's own tests, over the store on a server.
#![allow(clippy::unwrap_used)]

#[path = "../../../../queue/tests/queue/bounds.rs"]
mod bounds;
#[path = "../../../../queue/tests/queue/classic.rs"]
mod classic;
mod daemons;
#[path = "../../../../queue/tests/queue/extremes.rs"]
mod extremes;
#[path = "../../../../queue/tests/queue/histories.rs"]
mod histories;
#[path = "../../../../queue/tests/queue/model.rs"]
mod model;
#[path = "../../../../queue/tests/queue/statements.rs"]
mod statements;
mod subject;
#[path = "../../../../queue/tests/queue/words.rs"]
mod words;
