//! The queue in one SQLite file: [`SqliteRecords`] keeps the records of `shiftboss-queue`, and decides nothing.
//!
//! The tables are in `schema.sql`, the same ones as on a server. [`records`] carries out a batch's transaction, with [`load`], [`save`]
//! and [`header`] for its parts; [`code`] says how values are written. No actor, no clock, no socket.

mod code;
mod error;
mod header;
mod load;
mod prepared;
mod records;
mod save;
mod sums;

pub use records::SqliteRecords;
