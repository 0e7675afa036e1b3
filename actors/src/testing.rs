//! What tests of actors and of stores stand on: the naive model of the queue, a store made of it that fails
//! on demand, and what every store must pass.

// Their names say what they are, and what fails here fails a test.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, clippy::unit_arg)]

mod clock;
pub mod conformance;
mod describe;
pub mod model;
pub mod one_by_one;
mod reader;
mod store;
mod until;

pub use clock::ManualClock;
pub use store::{Inside, Kept, MockStore, Trouble};
pub use until::until;

#[cfg(test)]
mod tests;
