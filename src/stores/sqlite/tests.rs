//! What is the file's, tested through the trait that the StorageActor sees, and through SQL as outsiders do. What the queue does is
//! proved in the crate of its rules, over these tables too.

mod changes;
mod power_cuts;
mod refusals;
mod support;
mod syncs;
