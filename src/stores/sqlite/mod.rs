//! The queue in one SQLite file: [`SqliteStore`] implements the actors' `Store`.
//!
//! A thin struct around the queue's engine, over the records in a file (the crate `shiftboss-sqlite`): what happens to a job is decided
//! there. Here is what is the file's: opening, refusing and taking over in [`open`], the plain file in [`mod@file`], damage in
//! [`damage`], the log under load in [`checkpoints`], who else wants the lock in [`lock_yielding`], who else wrote
//! in [`changes`], checks, idle times and the end in [`maintenance`], copies in [`mod@backup`], moves in `transfer`. Called by the StorageActor through the trait ([`store`]).

mod backup;
mod changes;
mod checkpoints;
mod damage;
mod file;
mod lock_yielding;
mod maintenance;
mod open;
mod store;
#[cfg(test)]
mod tests;
pub(super) mod transfer;

use super::options;
pub(crate) use backup::backup;
pub(crate) use damage::{findings, mark, unmark};
pub(crate) use file::look;
pub(super) use file::stopped;
pub(crate) use maintenance::quick_check;
#[cfg(test)]
use options::{Durability, Options, Policy};
pub use store::SqliteStore;
pub(crate) use transfer::{give_back, salvage};
