//! The store against a real server (`make test-postgres` starts one): each test has a database of its own.

#[cfg(any())]
mod support;
#[cfg(any())]
mod tls;
