//! The program's parts, as a library so that tests and benchmarks can reach them.
//!
//! [`sqlite`] implements the queue; the commands are in the binary's modules.

pub mod sqlite;
