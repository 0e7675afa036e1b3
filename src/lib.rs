//! The program's parts, as a library so that tests and benchmarks can reach them.
//!
//! - [`cli`]: what the user typed. - [`commands`]: one file a subcommand.
//! - [`exit`]: how a command ends. - [`sqlite`]: implements the queue.

pub mod cli;
pub mod commands;
pub mod exit;
pub mod sqlite;
