//! The queue of shiftboss: one [record](record::Record) a key, [rules] that change it, the [engine] that carries out a
//! batch, and the [port](records) of a store that keeps records. The queue's semantics have their one home here.
//!
//! No actor, no SQL, no socket, no clock: `now` is an argument. Stores implement the port and decide nothing.

pub mod attempt;
pub mod code;
pub mod context;
pub mod counts;
pub mod credit;
pub mod documents;
pub mod engine;
pub mod error;
pub mod file_identity;
pub mod groups;
pub mod header;
pub mod hold_rules;
pub mod listings;
pub mod look;
mod members;
pub mod operation;
pub mod outcome_words;
pub mod pace;
pub mod place;
pub mod policy;
pub mod reader;
pub mod record;
pub mod records;
pub mod rules;
pub mod simulation;
pub mod standing;
pub mod sums;
pub mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod waits;
