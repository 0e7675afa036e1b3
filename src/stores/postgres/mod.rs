//! The queue in a PostgreSQL database, shared by several daemons: [`PostgresStore`] implements the actors' `Store`.
//!
//! A thin struct around the queue's engine, over the records on a server (the crate `shiftboss-postgres`): what happens to a job is decided
//! there. Here is what is the connection's and the daemons': a [`connection`] is made, with its [`password`] and [`tls`], and given up; no
//! [`pooler`] may be between; the [`schema`] is made. Who lives, and who is taken for dead, stands in the table of [`daemons`]; the
//! [`companion`] beats there, and judges the [`peers`]; [`transfer`] keeps them away from a queue that moves. [`store`] puts them together. The
//! [`reader`] answers questions. It knows no actor and no socket of a worker.

mod companion;
mod connection;
mod daemons;
mod forget;
mod membership;
mod password;
mod peers;
pub(super) mod pooler;
mod reader;
mod schema;
mod store;
#[cfg(test)]
mod tests;
mod tls;
pub(super) mod transfer;

pub(crate) use connection::Server;
pub(crate) use forget::forget;
pub(crate) use reader::PostgresReader;
pub(crate) use schema::{migrate, require_current};
pub(crate) use store::PostgresStore;
