//! Entries that are asked back from a living process that has them checked out and works on none of them
//! yet, as the daemon's intake: it says in its record that it takes requests, looks for them, and lends what
//! it can spare to whoever asks.
//!
//! A request is a symbolic link `.shiftboss/wanted/NAME` to the owner's name; it is answered when it is
//! gone. What was handed over is lent for a short time: should its asker be dead, it is given back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::Spool;
use super::claim::Holder;
use super::error::{self, Result, SpoolError};
use super::files;
use super::guard::Guard;
use super::layout::{self, WANTED, under};
use super::name::{EntryName, QueueName};
use super::owner;
use super::stop::Stop;

/// How long a process that takes requests may take for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it has answered.
const PAUSE: Duration = Duration::from_millis(20);
/// How long what is handed over waits for its asker.
const LEASE: Duration = Duration::from_secs(10);

impl Spool {
    /// From now on this process takes requests: it must look at [`Spool::requests`] every second or so.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn take_requests(&self) -> Result<()> {
        layout::ensure(self.layer(), Path::new(WANTED))?;
        for path in self.stale_requests()? {
            files::remove(self.layer(), &path)?;
        }
        self.offer_requests()
    }

    /// The entries that this process is asked for, in order.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn requests(&self) -> Result<Vec<EntryName>> {
        let me = self.owner()?;
        let mut names = Vec::new();
        for name in self.wanted()? {
            if self.asked_of(&name)?.as_ref() == Some(&me) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Answers a request: with the entry, or without it if somebody works on it.
    ///
    /// # Errors
    /// When the system refuses, or the claim is lost.
    pub fn answer(&self, name: &EntryName, guard: Option<Guard>) -> Result<()> {
        let lent = guard.map_or(Ok(()), |guard| guard.lend(Some(LEASE)));
        files::remove(self.layer(), &under(WANTED, name))?;
        lent
    }

    /// As [`Spool::settle`], but a living process that takes requests is asked for the entry first.
    ///
    /// # Errors
    /// As [`Spool::settle`]: [`SpoolError::Held`] when somebody works on it.
    pub fn settle_or_ask(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Guard>> {
        match self.settle(queue, name) {
            Err(SpoolError::Held { .. }) if self.ask(name)? => self.settle(queue, name),
            settled => settled,
        }
    }

    /// Asks the holder of an entry for it; whether that was of any use.
    fn ask(&self, name: &EntryName) -> Result<bool> {
        let Some(Holder::Owner(id)) = self.note(name)?.map(|note| note.holder) else {
            return Ok(true);
        };
        if !owner::takes_requests(self.layer(), &id)? {
            return Ok(false);
        }
        let path = under(WANTED, name);
        if self.asked_of(name)?.is_some_and(|other| other != id) {
            // It was made of somebody who has the entry no more.
            files::remove(self.layer(), &path)?;
        }
        match self.layer().symlink(id.as_bytes(), &path) {
            // Somebody else asks as well.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(error::io("ask for the entry by", &path)(errno)),
        }
        let answered = self.wait_for_answer(&path);
        // What was not answered is not wanted any longer.
        files::remove(self.layer(), &path)?;
        answered
    }

    fn wait_for_answer(&self, path: &Path) -> Result<bool> {
        let never = Stop::new().map_err(|source| SpoolError::Io {
            doing: "wait for an answer to",
            path: path.into(),
            source,
        })?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !never.wait(PAUSE) {
            // A link that leads nowhere: it is looked at without following it.
            if !files::exists(self.layer(), path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Names that somebody asks for, in order.
    fn wanted(&self) -> Result<Vec<EntryName>> {
        let path = Path::new(WANTED);
        let listed = match self.layer().list(path) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            listed => listed.map_err(error::io("list", path))?,
        };
        let mut names: Vec<_> =
            listed.iter().filter_map(|entry| EntryName::new(&entry.name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Whom a request is for; none if it is answered, or no request.
    fn asked_of(&self, name: &EntryName) -> Result<Option<String>> {
        let path = under(WANTED, name);
        match self.layer().read_link(&path) {
            Ok(id) => Ok(String::from_utf8(id).ok()),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(error::io("read", &path)(errno)),
        }
    }

    /// Requests that nobody will answer: of the dead.
    pub(super) fn stale_requests(&self) -> Result<Vec<PathBuf>> {
        let mut stale = Vec::new();
        for name in self.wanted()? {
            let is_alive = match self.asked_of(&name)? {
                Some(id) => !self.is_dead(&id)?,
                None => false,
            };
            if !is_alive {
                stale.push(under(WANTED, &name));
            }
        }
        Ok(stale)
    }
}
