//! Runs commands for programs such as `shiftboss work` and `shiftspool run`, so that nothing of a command outlives
//! the program.
//!
//! [`child`] starts one command, limits its time and passes its output on. [`run`] runs one for each of many jobs, some
//! at a time: a [`Source`] supplies the jobs and takes them back, [`command`] starts them, and [`log_directory`] keeps
//! their output in files. [`signals`] ends a run. [`escape`] and [`safe_file`] are for text from outside and for files
//! where others may write, [`hash`] for names made from bytes.
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
pub use slots::{Ended, Ending, Source, Stop, run};
