//! Repair: finds everything that a crash of anybody leaves in a spool (spec 5), says what it found
//! and, if it may, mends it. What was acknowledged is there afterwards, once; what was half-made is
//! gone; what cannot be judged is set aside, never deleted.
//!
//! It presumes that producers are stopped, and consumers that make no notes (the reference's) too;
//! with an age, it leaves alone what is younger. Consumers of ours may work: whatever is mended is
//! claimed first, as they do.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use serde::Serialize;

use super::Spool;
use super::claim::{Holder, Note};
use super::error::{self, Result, SpoolError};
use super::files;
use super::layout;
use super::layout::STRAYS;
use super::mend;
use super::name::{EntryName, QueueName, text};
use super::stop::Stop;

/// Another fsck or reclaim is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// How a spool is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsckOptions {
    /// Whether what is found is mended.
    pub repair: bool,
    /// Leave alone what was touched within this time; `None` if nobody is at work.
    pub older_than: Option<Duration>,
}

/// What a crash left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// A directory of the spool or a queue is missing: made.
    MissingDirectory,
    /// An entry is checked out by a dead process, or due: given back.
    DeadOwner,
    /// An entry is checked out and nobody has noted it: given back.
    Unowned,
    /// A temporary file: deleted.
    HalfWritten,
    /// Data without a name: deleted.
    OrphanedData,
    /// A name without an entry, from a publication or a removal that did not end: given up.
    OrphanedName,
    /// A queue's file without a name, but with data: registered again.
    Unregistered,
    /// A checkout without data, from the reference's interrupted removal: removed.
    HalfRemoved,
    /// An available entry without data: set aside in quarantine.
    WithoutData,
    /// Metadata that cannot be opened: set aside in quarantine.
    Unreadable,
    /// An entry in several places: the one that was saved last stays, the others are set aside.
    Duplicated,
    /// What is no entry at all: set aside among the strays.
    Stray,
    /// A note or a count of nothing: deleted.
    Stale,
}

/// A finding, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mended {
    /// What was found.
    pub finding: Finding,
    /// The file, relative to the spool, with `\xNN` for what is not text.
    pub path: String,
    /// What was done or, without repair, is to be done.
    pub action: String,
    /// Whether it was done.
    pub mended: bool,
    /// Why not, if it was tried.
    pub error: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fsck {
    /// In the order of checking; none in a healthy spool.
    pub findings: Vec<Mended>,
    /// What is in quarantine now. That is healthy.
    pub quarantined: Vec<EntryName>,
}

impl Fsck {
    /// Whether nothing is wrong, and nothing was: exit status 0.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether nothing is wrong any more.
    #[must_use]
    pub fn is_mended(&self) -> bool {
        self.findings.iter().all(|finding| finding.mended)
    }
}

/// A check in progress.
pub(super) struct Check<'s> {
    pub spool: &'s Spool,
    options: FsckOptions,
    findings: Vec<Mended>,
}

impl Spool {
    /// Checks the spool, which may be open without checks ([`Spool::load_unchecked`]), and repairs it.
    ///
    /// # Errors
    /// When it is no spool at all, a directory cannot be listed, or another process has been at it
    /// for ten seconds. What could not be mended is a finding.
    pub fn fsck(&self, options: FsckOptions) -> Result<Fsck> {
        let mut check = Check { spool: self, options, findings: Vec::new() };
        check.directories()?;
        let _held = if options.repair { Some(self.wait_for_lock()?) } else { None };
        mend::all(&mut check)?;
        Ok(Fsck { findings: check.findings, quarantined: self.quarantined()? })
    }

    /// The lock of those who change others' notes.
    pub(super) fn wait_for_lock(&self) -> Result<std::os::fd::OwnedFd> {
        let path = Path::new(layout::LOCK);
        let never = Stop::new().map_err(|source| SpoolError::Io {
            doing: "wait for",
            path: path.into(),
            source,
        })?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(held) = layout::lock(self.layer())? {
                return Ok(held);
            }
            if Instant::now() >= end || never.wait(PAUSE) {
                return Err(SpoolError::Locked(self.path().to_owned()));
            }
        }
    }
}

impl Spool {
    /// Runs a repair as the holder of an entry, so that no consumer is at it. Nothing is done, and
    /// `false` said, if one is.
    pub(super) fn holding(
        &self,
        name: &EntryName,
        repair: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let note = Note::new(Holder::Owner(self.owner()?), 0, QueueName::trusted("fsck"));
        if !self.note_new(name, &note)? {
            return Ok(false);
        }
        let result = repair();
        self.forget_note(name)?;
        result
    }

    /// Moves a file among the strays, under its name or, if that is taken, a number.
    pub(super) fn put_aside(&self, path: &Path) -> Result<bool> {
        let named = path.file_name().map(|name| Path::new(STRAYS).join(name));
        let numbered = Path::new(STRAYS).join(format!("{:016x}", files::random()));
        for to in named.iter().chain([&numbered]) {
            match self.layer().rename(path, to) {
                Ok(()) => return Ok(true),
                Err(Errno::NOENT) => return Ok(false),
                Err(Errno::EXIST) if *to != numbered => {}
                Err(errno) => return Err(error::io("set aside", path)(errno)),
            }
        }
        Ok(false)
    }
}

impl Check<'_> {
    /// Makes the directories that are missing; without them nothing else can be mended.
    fn directories(&mut self) -> Result<()> {
        let (spool, layer) = (self.spool, self.spool.layer());
        if layer.stat(Path::new(layout::REGISTRY)) == Err(Errno::NOENT)
            && layer.stat(Path::new(layout::DATA)) == Err(Errno::NOENT)
            && layer.stat(Path::new(layout::TMP)) == Err(Errno::NOENT)
        {
            return Err(SpoolError::NotASpool(spool.path().to_owned()));
        }
        for directory in layout::FORMAT {
            self.directory(Path::new(directory))?;
        }
        if self.options.repair {
            layout::create(layer, spool.path(), spool.full())?;
        }
        for queue in spool.queues()? {
            self.directory(&layout::checkouts(&queue))?;
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path) -> Result<()> {
        match self.spool.layer().stat(path) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => {
                let spool = self.spool;
                self.found(Finding::MissingDirectory, path, "made", || {
                    layout::ensure(spool.layer(), path).map(|_| true)
                });
                Ok(())
            }
            Err(errno) => Err(error::io("look at", path)(errno)),
        }
    }

    /// Notes a finding, and mends it if that is wanted. A repair that says `false` found that there
    /// was nothing: somebody at work ended it.
    pub fn found(
        &mut self,
        finding: Finding,
        path: &Path,
        action: &str,
        repair: impl FnOnce() -> Result<bool>,
    ) {
        use std::os::unix::ffi::OsStrExt;
        let (mended, error) = match self.options.repair.then(repair) {
            Some(Ok(false)) => return,
            Some(Ok(true)) => (true, None),
            Some(Err(error)) => (false, Some(error.to_string())),
            None => (false, None),
        };
        let (path, action) = (text(path.as_os_str().as_bytes()), action.to_owned());
        self.findings.push(Mended { finding, path, action, mended, error });
    }

    pub fn repairs(&self) -> bool {
        self.options.repair
    }

    /// Notes what was mended already.
    pub fn mended(&mut self, finding: Finding, path: &Path, action: &str) {
        self.found(finding, path, action, || Ok(true));
    }

    /// Whether a file is there, and old enough that nobody is at it.
    pub fn is_left(&self, path: &Path) -> Result<bool> {
        let stat = match self.spool.layer().stat(path) {
            Err(Errno::NOENT) => return Ok(false),
            stat => stat.map_err(error::io("look at", path))?,
        };
        let age = SystemTime::now().duration_since(stat.modified).unwrap_or_default();
        Ok(self.options.older_than.is_none_or(|limit| age > limit))
    }
}
