//! The queue on a PostgreSQL server: [`PostgresRecords`] keeps the records of `shiftboss-queue`, and decides nothing.
//!
//! The tables are in `schema.sql`, the same ones as in a file; there are no functions on the server. [`records`]
//! carries out a batch's transaction, over a [`wire`] that sends statements together; [`load`] and [`save`] have the
//! statements. Readers use a [`Moment`]. When to connect is not decided here. No actor, no clock of its own.

pub mod error;
mod front;
mod header;
mod load;
mod numbers;
mod reader;
mod records;
mod save;
mod sums;
pub mod tables;
mod wire;

pub use reader::Moment;
pub use records::{ALONE, PostgresRecords, SCHEMA, SETTINGS};
