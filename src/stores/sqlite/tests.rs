//! What concerns the file, tested through the trait that the StorageActor sees, and through SQL as outsiders use it.
//! The queue itself is tested in the crate of its rules, over these tables, too.

mod changes;
mod power_cuts;
mod refusals;
mod support;
mod syncs;
