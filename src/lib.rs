//! The program's parts, as a library so that tests and benchmarks can reach some of them.
//!
//! [`stores`] implements the queue. [`child`] runs commands, [`schedule`] says when, [`fetch`]
//! has one write a list, [`runner`] runs one for each job, which [`worker`] takes from the daemon. [`cli`] is what the user typed;
//! [`commands`] has one file a subcommand; [`target`], [`client`], [`socket`], [`text`], [`escape`], [`limits`], [`lock`], [`logging`],
//! [`safe_file`], [`signals`] and [`exit`] are what they stand on.
//!
//! [`config`] reads the configuration file, and [`fetchers`] runs the fetchers that it names.
//!
//! The filesystem queue is a crate of its own, [`shiftboss_spool`]; [`intake`] brings its tasks into the daemon's queue.

pub mod child;
pub mod cli;
mod client;
pub mod commands;
mod config;
mod escape;
pub mod exit;
mod fetch;
mod fetchers;
mod intake;
mod limits;
pub mod lock;
mod logging;
mod near;
mod runner;
mod safe_file;
mod schedule;
mod signals;
mod socket;
pub mod stores;
mod target;
mod terminal;
mod text;
mod worker;
