//! Runs commands for programs such as `shiftboss work` and `shiftspool run`, so that nothing of a command outlives
//! the program.
//!
//! [`child`] starts one command, limits its time and passes its output on. [`run`] runs one for each of many jobs, some at a
//! time: where jobs come from, and what becomes of them, a [`Source`] says; [`command`] starts them, and
//! [`log_directory`] has their output in files. [`signals`] ends a run. [`escape`] and [`safe_file`] are for text and
//! files that others had their hands on, [`hash`] for names made of bytes.
//!
//! It has no command line, prints nothing but what commands write, and knows nothing of queues.

pub mod child;
pub mod command;
pub mod descriptors;
pub mod escape;
pub mod hash;
pub mod log_directory;
pub mod log_index;
mod log_sweep;
pub mod payload;
pub mod safe_file;
pub mod signals;
mod slots;

pub use command::RunnerSettings;
pub use slots::{Ended, Source, Stop, run};
