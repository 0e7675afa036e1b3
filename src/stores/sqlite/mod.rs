//! The queue in one SQLite file: [`SqliteStore`] implements the actors' `Store`.
//!
//! A plain struct around one connection, called by the StorageActor through the trait ([`store`]). It knows no
//! actor and no socket, and no clock that decides about a job. A [`session`] carries a batch out; the modules of the operations implement it.
//! The schema is in `migrations/`, `triggers.sql` and [`schema`]; opening and refusing in [`open`], damage in
//! [`damage`] and [`mod@recover`]; the queue's order in [`dispatch`], under [`partitions`]; dispatches and their ends
//! in [`deliveries`], [`attempts`] and [`leases`], those of programs without leases in [`adopt`]; what is kept in
//! memory between jobs in [`dispatch_cache`], [`write_behind`] and [`hours`]; runs and rows in [`runs`] and [`rowids`]; single tasks in
//! [`tasks`], their rows in [`task_rows`]; rows that a changed file lists no longer in [`listings`]; due times when the clock was set in
//! [`due_times`]; what the daemon notes of itself in [`records`], what relays have in [`relays`], those that are gone for good in
//! [`mod@forget_relay`]; what triggers do for others in [`derived_state`]; the log under load in
//! [`checkpoints`]; who else wants the lock in [`lock_yielding`], who else wrote in [`changes`]; checks, idle times
//! and the end in [`maintenance`]; copies in [`mod@backup`], moves in `transfer`. Readers have [`snapshot`] and [`views`].

mod adopt;
mod attempts;
mod backup;
mod bumps;
mod candidates;
mod changes;
mod checkpoints;
mod damage;
mod deliveries;
mod derived_state;
mod dispatch;
mod dispatch_cache;
mod due_times;
mod error;
mod failures;
mod file;
mod forget;
mod forget_relay;
mod holds;
mod hours;
mod leases;
mod leaves;
mod listings;
mod lock_yielding;
mod maintenance;
mod open;
mod partitions;
mod query;
mod records;
mod recover;
mod relays;
mod retries;
mod rowids;
mod rows;
mod runs;
mod schema;
mod session;
mod snapshot;
mod store;
mod task_rows;
mod tasks;
#[cfg(test)]
mod tests;
pub(super) mod transfer;
mod views;
mod write_behind;

use super::options;
pub(crate) use backup::backup;
pub(crate) use damage::{findings, mark, unmark};
pub(crate) use file::look;
pub(super) use forget_relay::forget_relay;
pub(crate) use maintenance::quick_check;
#[cfg(test)]
use options::{Durability, Options, Policy};
pub(crate) use recover::{Saved, recover};
pub(crate) use snapshot::{open_to_read, require_files};
pub use store::SqliteStore;
pub(crate) use views::SqliteReader;
