//! The program's parts, as a library so that tests and benchmarks can reach some of them.
//!
//! [`stores`] implements the queue. [`child`] runs commands, [`schedule`] says when, [`fetch`]
//! has one write a list, [`runner`] runs one for each job, which [`worker`] takes from the daemon. [`cli`] is what the user typed;
//! [`commands`] has one file a subcommand; [`target`], [`client`], [`socket`], [`text`], [`escape`], [`limits`], [`lock`], [`logging`],
//! [`safe_file`], [`signals`], [`standard_error`] and [`exit`] are what they stand on.
//!
//! [`first_process`] reaps orphans where we are a container's first process.
//!
//! [`config`] reads the configuration file, and [`fetchers`] runs the fetchers that it names.
//!
//! Crates of their own are the filesystem queue, [`shiftboss_spool`], whose tasks [`intake`] brings into the daemon's queue, and
//! relays, [`shiftboss_relay`].

pub mod child;
pub mod cli;
mod client;
pub mod commands;
mod config;
mod escape;
pub mod exit;
mod fetch;
mod fetchers;
pub mod first_process;
mod intake;
mod limits;
mod live;
pub mod lock;
mod logging;
mod metrics;
mod near;
mod outputs;
mod process_usage;
mod runner;
mod safe_file;
mod schedule;
mod signals;
mod socket;
pub mod standard_error;
pub mod stores;
mod target;
mod terminal;
mod text;
mod top;
mod view;
mod web;
mod worker;
