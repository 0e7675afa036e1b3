//! What keeps the queue, behind the actors' port `Store`: a module for each kind of database.
//!
//! A store knows no actor, no socket and no command line.

pub mod sqlite;
