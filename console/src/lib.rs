//! What the programs `shiftboss` and `shiftspool` print, and how they end: the command-line code that both share.
//!
//! [`program`] is their `main`; [`exit`] has the exit codes and the failure that carries one. [`arguments`] are options
//! that commands of both have, [`limits`] what a command needs of the system, [`input`] what it reads, [`printing`] what it prints, [`text`] and [`near`] what
//! texts for people are made of. [`logging`] writes the log, through [`standard_error`]; [`terminal`] says what a terminal
//! can show. [`first_process`] reaps orphans where a program is a container's first process.
//!
//! It knows of no queue and of no spool, and starts no command.

pub mod arguments;
pub mod exit;
mod first_process;
pub mod input;
pub mod limits;
pub mod logging;
pub mod near;
pub mod printing;
pub mod program;
pub mod standard_error;
pub mod terminal;
pub mod text;
