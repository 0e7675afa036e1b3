//! What tests break things with: a PostgreSQL server of their own, and a proxy before a server.
//!
//! Used by the store's tests, the daemon's tests and the soak. Not a library for others. Knows nothing of the queue.

// It waits for other processes.
#![allow(clippy::disallowed_methods)]

pub mod clock;
pub mod far;
pub mod processes;
pub mod proxy;
pub mod server;
