//! A filesystem spool: queues that are directories, for processes that share no daemon.
//! docs/spool.md describes the files and the promises; this is the library, and [`program`] is `shiftspool`, which uses
//! it. A producer and a worker are in `examples/`.
//!
//! Everything here blocks, and fails with [`SpoolError::Io`] if the system refuses a call.
//!
//! ```
//! use std::time::Duration;
//!
//! use shiftspool::{Item, Options, Order, QueueName, Spool, Stop, time_ordered};
//!
//! # fn send(_to: &[u8], _mail: &[u8]) -> std::io::Result<()> { Ok(()) }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("spool");
//! let options = Options { attempts_max: Some(5), ..Options::default() };
//! let spool = Spool::create(&path, options)?;
//! let queue = QueueName::new("mail")?;
//! spool.enqueue(&queue, time_ordered, &Item::new("to: ann", "Hello"))?;
//! // It is in the queue now, and on disk. A worker, in any process:
//! let mut reader = spool.reader(&queue, Order::Strict)?;
//! let stop = Stop::new()?; // A clone of it, in a thread for signals, ends the wait.
//! # let limit = Some(Duration::ZERO);
//! while let Some(guard) = reader.dequeue(&stop, limit)? {
//!     match send(guard.metadata(), &guard.data().load()?) {
//!         Ok(()) => guard.complete()?,
//!         Err(_) => guard.retry_after(Duration::from_secs(10))?,
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Inside
//!
//! Every file-system call is a method of `layer`; `files` makes whole files of them, and `layout` says where they are.
//! `spool` is the handle. It is used by `claim` (who has what, and how that is noted), `entry` (entries on disk),
//! `publish`, `reclaim` (what dead processes left), `guard`, `reader`, and `survey`, whose findings `monitor` and
//! `fsck` judge.
//!
//! - **Notes are symbolic links.** A link is made, with its content and exclusively, by one call, and read by one;
//!   a file would take four and could be half-written. A note is changed by its owner or, if that is dead, by the one
//!   process that has the reclaim lock: nothing is taken from living processes.
//! - **A delayed entry is a checked-out one** whose note has a time instead of an owner: the reference leaves it alone,
//!   and reclaim gives it back when it is due.
//! - **Attempts** are counted in the note at the claim. A number of its own (`.shiftboss/attempts/`) is
//!   written only when an entry comes back, so that an entry that succeeds at once costs nothing extra.
//! - **An entry is in one directory at any moment.** Changed metadata replaces the checked-out file,
//!   which is then renamed into the other queue. Removal deletes the entry, its data, its name, in this order. So a
//!   registered name that is in no queue belongs to a publication or a removal in progress, or to none, and fsck may
//!   delete it.
//! - **Paths are relative to one open directory**, so that a spool which is renamed goes on, and a
//!   second one mounted over it is not mistaken for it.
//! - **One sync for a batch** is `syncfs`: a thousand files one by one are a thousand waits.

mod claim;
mod entry;
mod error;
mod files;
mod fsck;
mod guard;
mod layer;
mod layout;
mod monitor;
mod name;
mod owner;
pub mod program;
mod publish;
mod reader;
mod reclaim;
mod spool;
mod survey;
#[cfg(test)]
mod tests;
mod wait;

pub use entry::{DATA_BYTES_MAX, Data, DataStat, EntryInfo, Holding, METADATA_BYTES_MAX};
pub use error::{Result, SpoolError};
pub use fsck::{Finding, Fsck, FsckOptions, Mended};
pub use guard::Guard;
pub use monitor::{Event, Limits, Monitor, Problem, ProblemKind, Report, Turn};
pub use name::{EntryName, NameError, QueueName, time_ordered};
pub use owner::Identity;
pub use publish::{Draft, Item, Reservation};
pub use reader::{Order, Reader};
pub use spool::{DEAD_LETTER, Durability, Options, Spool};
pub use survey::Place;
pub use wait::Stop;
