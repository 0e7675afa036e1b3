//! The Python supervisor's database (spec 6): what outsiders see and edit, and how a file is taken over and given back.
#![allow(clippy::unwrap_used)]

mod edits;
#[path = "../../../../tests/common/reference.rs"]
mod reference;
mod sides;
#[allow(dead_code)] // Its counts are of the tests beside.
#[path = "../queue/subject.rs"]
mod subject;
mod take_over;
#[path = "../../../../queue/tests/queue/words.rs"]
mod words;
