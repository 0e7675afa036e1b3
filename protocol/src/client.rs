//! A blocking client of the daemon: [`Worker`] takes jobs and reports their ends, [`Connection`] sends and
//! receives lines. For programs in Rust; `docs/protocol.md` says what goes over the socket.

mod connection;
mod worker;

pub use connection::{Connection, Deadline, is_close, is_timeout, within};
pub use worker::{ANSWER_TIMEOUT, BeatAnswer, ClientError, Worker};
