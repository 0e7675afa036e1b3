//! What is shown of a queue, each in one read transaction: how it stands ([`queue_status`]), what is
//! next ([`queue()`], [`turns`]), where a key is ([`why()`]), what ended ([`log`]), which tasks have a status
//! ([`tasks()`]). Called by the commands that show it.

pub use attempts::{Ended, Log, Wanted, in_words, log};
pub use queue::{Next, Queue, queue, turns};
pub use status::{
    FetcherStatus, HOLDERS_MAX, Holding, ManagedFetcher, ManagedRun, QueueStatus, queue_status,
};
pub use tasks::{Asked, Task, TaskStatus, Tasks, tasks};
pub use why::{Delivery, KeyRow, KeyState, LastResult, Place, RowState, Why, why};

mod attempts;
mod order;
pub(super) mod queue;
pub(crate) mod status;
mod tasks;
mod why;
