//! What the tests of actors stand on: the queue's engine over records in memory as a store that fails on demand, and a clock that
//! stands still.

// Their names say what they are, and what fails here fails a test.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, clippy::unit_arg)]

mod calls;
mod clock;
mod store;
mod until;

pub use clock::ManualClock;
pub use store::{MockStore, Trouble};
pub use until::until;
