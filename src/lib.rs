//! The program's parts, as a library so that tests and benchmarks can reach some of them.
//!
//! [`stores`] implements the queue. [`schedule`] says when commands run, [`fetch`]
//! has one write a list, [`worker`] has one run for each job. [`cli`] is what the user typed;
//! [`commands`] has one file a subcommand; [`target`], [`hint`], [`client`], [`socket`] and [`lock`] are their basis. So are
//! [`shiftboss_runner`], whose [`child`] runs one command and whose [`runner`] runs one for each job, and
//! [`shiftboss_console`], which has what two programs say and how they end.
//!
//! [`config`] reads the configuration file, and [`fetchers`] runs the fetchers that it names.
//! Relays are a crate of their own, [`shiftboss_relay`].

pub mod cli;
mod client;
pub mod commands;
mod config;
mod fetch;
mod fetchers;
mod hint;
mod live;
pub mod lock;
mod metrics;
mod orders;
mod outputs;
mod process_usage;
mod schedule;
mod socket;
pub mod stores;
mod target;
mod top;
mod view;
mod web;
mod worker;

use shiftboss_console::{exit, limits, logging, near, program, standard_error, terminal, text};
use shiftboss_runner::{self as runner, child, escape, safe_file, signals};
