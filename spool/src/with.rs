//! An entry checked out for the length of a function, which says what becomes of it.

use super::Spool;
use super::entry::Data;
use super::error::{Result, SpoolError};
use super::name::{EntryName, QueueName};

/// What becomes of an entry that [`Spool::with_entry`] worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// It goes into this queue, its metadata as the function left it.
    Save(QueueName),
    /// It is removed.
    Remove,
}

/// The result of [`Spool::try_with_entry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum With<T> {
    /// The function ran, and gave this.
    Done(T),
    /// The entry was gone.
    NotFound,
}

impl Spool {
    /// Checks an entry out, runs a function on its metadata and data, and does what it says. If it
    /// panics or says an error, the entry is given back.
    ///
    /// # Errors
    /// The function's, and as [`Spool::checkout`] and [`Guard::move_to`](super::Guard::move_to).
    pub fn with_entry<T, E: From<SpoolError>>(
        &self,
        queue: &QueueName,
        name: &EntryName,
        run: impl FnOnce(&mut Vec<u8>, &Data) -> Result<(Then, T), E>,
    ) -> Result<T, E> {
        match self.try_with_entry(queue, name, run)? {
            With::Done(value) => Ok(value),
            With::NotFound => Err(Self::gone(queue, name).into()),
        }
    }

    /// As [`Spool::with_entry`], but an entry that is gone is an answer.
    ///
    /// # Errors
    /// As [`Spool::with_entry`], but for that.
    pub fn try_with_entry<T, E: From<SpoolError>>(
        &self,
        queue: &QueueName,
        name: &EntryName,
        run: impl FnOnce(&mut Vec<u8>, &Data) -> Result<(Then, T), E>,
    ) -> Result<With<T>, E> {
        let Some(mut guard) = self.try_checkout(queue, name)? else {
            return Ok(With::NotFound);
        };
        let mut metadata = guard.metadata().to_vec();
        let (then, value) = run(&mut metadata, &guard.data())?;
        if metadata != guard.metadata() {
            guard.set_metadata(metadata);
        }
        match then {
            Then::Save(queue) => guard.move_to(&queue)?,
            Then::Remove => guard.complete()?,
        }
        Ok(With::Done(value))
    }
}
