//! The store against a real server (`make test-postgres` starts one): each test has a database of its own.

mod both;
mod claims;
mod concurrency;
mod conformance;
mod daemons;
mod faults;
mod forget;
mod outside;
mod questions;
mod relays;
mod support;
mod takeover;
mod tls;
mod together;
mod upgrades;
