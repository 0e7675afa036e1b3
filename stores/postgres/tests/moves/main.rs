//! Queues that move: the queue's random histories, over a store that is in a file, on a server and in a file again, in
//! turn. Wherever it moves, between whatever steps, everything is as before, and goes on.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, unused_imports)]
#[path = "../../../sqlite/tests/queue/subject.rs"]
mod file;
#[path = "../../../../queue/tests/queue/histories.rs"]
mod histories;
#[path = "../../../../queue/tests/queue/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "../queue/subject.rs"]
mod server;
mod subject;
#[path = "../../../../queue/tests/queue/words.rs"]
mod words;
