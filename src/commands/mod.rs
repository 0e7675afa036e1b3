//! The subcommands, a file each. They join what the user typed to the parts that do the work,
//! and turn what went wrong into a [`Failure`](crate::exit::Failure).

pub mod ask;
pub mod check;
