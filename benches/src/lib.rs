//! What the benchmarks and the soak share: a load generator, the servers that it drives, and how figures are
//! shown. Not a library for others.

// A driver may sleep: it waits for other processes.
#![allow(clippy::disallowed_methods)]

pub mod bare;
pub mod broker;
pub mod load;
pub mod postgres;
pub mod protocol;
pub mod report;
pub mod rows;
pub mod servers;
pub mod spool;
