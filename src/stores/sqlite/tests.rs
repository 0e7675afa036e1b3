//! The store, tested through the trait that the StorageActor sees, and through SQL as outsiders do.

mod attempts;
mod changes;
mod due_times;
mod edits;
mod entries;
mod failed;
mod fairness;
mod histories;
mod history;
mod leases;
mod managed_fetchers;
mod power_cuts;
mod questions;
mod refusals;
mod relayed_rows;
mod relays;
mod shapes;
mod statements;
mod support;
mod take_over;
mod tasks;
mod tasks_elsewhere;
mod upgrades;
mod views;
