//! The queue in a PostgreSQL database, shared by several daemons: [`PostgresStore`] implements the actors' `Store`.
//!
//! What is done about an operation is done by SQL functions (`schema/`), one call a batch: so a daemon that dies or freezes
//! in the middle holds no transaction open. Here a [`batch`] is put into that call, and its [`answers`] are read; a
//! [`connection`] is made, with its [`password`] and [`tls`], and given up; no [`pooler`] may be between; the [`schema`] is made. [`store`] puts them together. It knows no actor and no
//! socket of a worker. The reader is [`reader`].

mod answers;
mod batch;
mod companion;
mod connection;
mod error;
mod forget;
mod membership;
mod notices;
mod password;
mod peers;
pub(super) mod pooler;
mod reader;
mod schema;
mod standstill;
mod store;
#[cfg(test)]
mod tests;
mod tls;
pub(super) mod transfer;

pub(crate) use connection::Server;
pub(crate) use forget::{Forgotten, forget};
pub(crate) use membership::Identity;
pub(crate) use reader::PostgresReader;
pub(crate) use schema::{migrate, require_current};
pub(crate) use store::PostgresStore;
