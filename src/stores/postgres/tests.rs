//! The store against a real server (`make test-postgres` starts one): each test has a database of its own.

mod both;
mod concurrency;
mod conformance;
mod daemons;
mod proxy;
mod support;
