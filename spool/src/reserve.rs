//! Names: one is reserved before anything is written under it, and given up if nothing is. Used by
//! publication.

use super::Spool;
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::How;
use super::layout::{REGISTRY, under};
use super::name::EntryName;

use rustix::io::Errno;

/// How often a generator is asked for another name.
pub const NAME_TRIES_MAX: u32 = 10_000;

/// A name that is reserved and not used yet. Given up when dropped.
#[derive(Debug)]
pub struct Reservation {
    pub(super) spool: Spool,
    pub(super) name: EntryName,
    /// Whether it is given up when dropped.
    pub(super) held: bool,
}

impl Reservation {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &EntryName {
        &self.name
    }

    /// Leaves it reserved, for another process that will [`Spool::adopt`] it.
    #[must_use]
    pub fn keep(mut self) -> EntryName {
        self.held = false;
        self.name.clone()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.held {
            // A name that stays registered is reported by the monitor and mended by fsck.
            let _ = self.spool.layer().remove(&under(REGISTRY, &self.name));
        }
    }
}

impl Spool {
    /// Reserves a name for a later enqueue. The generator is asked with 0, 1, 2... while its answers
    /// are taken.
    ///
    /// # Errors
    /// When the system refuses, or [`NAME_TRIES_MAX`] names are taken.
    pub fn reserve(&self, mut names: impl FnMut(u32) -> EntryName) -> Result<Reservation> {
        let mut last = names(0);
        for tries in 1..=NAME_TRIES_MAX {
            match self.reserve_name(last) {
                Err(SpoolError::Taken(_)) => last = names(tries),
                result => return result,
            }
        }
        Err(SpoolError::NoFreeName { tries: NAME_TRIES_MAX, last })
    }

    /// Reserves this name.
    ///
    /// # Errors
    /// When it is taken, or the system refuses.
    pub fn reserve_name(&self, name: EntryName) -> Result<Reservation> {
        let path = under(REGISTRY, &name);
        match self.layer().open(&path, How::New) {
            Ok(_) => Ok(Reservation { spool: self.clone(), name, held: true }),
            Err(Errno::EXIST) => Err(SpoolError::Taken(name)),
            Err(errno) => Err(error::io("reserve the name", &path)(errno)),
        }
    }

    /// Takes over a name that another process reserved and kept.
    ///
    /// # Errors
    /// When it is not reserved.
    pub fn adopt(&self, name: EntryName) -> Result<Reservation> {
        if !files::exists(self.layer(), &under(REGISTRY, &name))? {
            return Err(SpoolError::NotReserved(name));
        }
        Ok(Reservation { spool: self.clone(), name, held: true })
    }
}
