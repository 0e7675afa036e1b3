//! The queue's own tests, over the store in a file; and what only a file can be.
#![allow(clippy::unwrap_used)]

#[path = "../../../../queue/tests/queue/alike.rs"]
mod alike;
#[path = "../../../../queue/tests/queue/asked.rs"]
mod asked;
#[path = "../../../../queue/tests/queue/bounds.rs"]
mod bounds;
mod damage;
#[path = "../../../../queue/tests/queue/extremes.rs"]
mod extremes;
#[path = "../../../../queue/tests/queue/groups.rs"]
mod groups;
#[path = "../../../../queue/tests/queue/histories.rs"]
mod histories;
#[path = "../../../../queue/tests/queue/in_memory.rs"]
mod in_memory;
#[path = "../../../../queue/tests/queue/members.rs"]
mod members;
#[path = "../../../../queue/tests/queue/model.rs"]
mod model;
#[path = "../../../../queue/tests/queue/notes.rs"]
mod notes;
#[path = "../../../../queue/tests/queue/positions.rs"]
mod positions;
#[path = "../../../../queue/tests/queue/previews.rs"]
mod previews;
#[path = "../../../../queue/tests/queue/questions.rs"]
mod questions;
mod quiet;
mod refused;
#[path = "../../../../queue/tests/queue/relays.rs"]
mod relays;
mod rolled_back;
mod salvage;
mod size;
#[path = "../../../../queue/tests/queue/starts.rs"]
mod starts;
#[path = "../../../../queue/tests/queue/statements.rs"]
mod statements;
mod subject;
#[path = "../../../../queue/tests/queue/words.rs"]
mod words;
