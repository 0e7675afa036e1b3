//! The program's parts, as a library so that tests and benchmarks can reach them.
//!
//! [`sqlite`] implements the queue. [`child`] runs commands, [`change`] when files change, [`fetch`]
//! has one write a list, [`worker`] runs one for each job. [`cli`] is what the user typed;
//! [`commands`] has one file a subcommand; [`target`], [`client`], [`socket`], [`escape`], [`limits`], [`lock`], [`logging`],
//! [`reports`], [`safe_file`], [`signals`] and [`exit`] are what they stand on.
//!
//! [`config`] reads the configuration file, and [`fetchers`] runs the fetchers that it names.
//!
//! The filesystem queue is a crate of its own, [`shiftboss_spool`]; [`intake`] brings its tasks into the daemon's queue.

pub mod change;
pub mod child;
pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod escape;
pub mod exit;
pub mod fetch;
pub mod fetchers;
pub mod intake;
pub mod limits;
pub mod lock;
pub mod logging;
pub mod near;
pub mod reports;
pub mod runner;
pub mod safe_file;
pub mod signals;
pub mod socket;
pub mod sqlite;
pub mod target;
pub mod terminal;
pub mod worker;
