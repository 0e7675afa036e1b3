//! What a program needs to write a worker, a fetcher or a producer for shiftboss: keys and jobs, the lines
//! of fetcher files, and the protocol of the socket (`docs/protocol.md`); and what every crate needs to reach servers:
//! [`url`]s and [`backoff`]. No actor and no SQL here.

pub mod answers;
pub mod backoff;
pub mod client;
pub mod fetcher_file;
pub mod model;
pub mod task_line;
pub mod url;
pub mod verbs;
pub mod wire;
