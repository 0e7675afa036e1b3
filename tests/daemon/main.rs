//! The daemon as a process: start, stop, kills, faults of the machine, and its database.
#![allow(clippy::unwrap_used)]

mod backup;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod database;
mod faults;
mod group_limits;
mod init_system;
mod kills;
mod lifecycle;
mod link_check;
mod logging;
mod observed;
mod on_server;
mod over_broker;
mod safety;
mod serving;
mod spool_tasks;
mod unserved;
