//! The supervision tree of shiftboss and the language it speaks.
//!
//! - [`model`]: keys, runs, jobs. - [`fetcher_file`]: names and lines of fetcher files.
//! - [`wire`]: the worker protocol. - [`store`]: what the tree needs of a queue.
//!
//! Invariants: nothing here knows SQL, the command line, or a file outside the input
//! directory; `model`, `fetcher_file`, `wire` and `store` know no actor.

pub mod fetcher_file;
pub mod model;
pub mod store;
pub mod wire;
