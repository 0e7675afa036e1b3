//! Repair: finds everything that any process's crash leaves in a spool (spec 5), reports what it found and, if it may,
//! mends it. Afterwards everything acknowledged is there, once, and everything half-made is gone; what cannot be judged
//! goes to quarantine and is never deleted.
//!
//! It assumes that producers are stopped, and consumers that do not write notes (the reference's), too; with an age, it
//! leaves alone what is younger. Our consumers may work: whatever is mended is claimed first, as they do.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;

use super::Spool;
use super::claim::Note;
use super::entry::age;
use super::error::{NoneIf, Result, SpoolError, io};
use super::files::joined;
use super::layer::FileStat;
use super::layout::{
    self, CLAIMS, DATA, FORMAT, MOVING, REGISTRY, TMP, available, checked_out, checkouts, under,
};
use super::name::{EntryName, QueueName, text};
use super::survey::{Place, Survey, has_entry, of_entry};

const TO_QUARANTINE: &str = "moved to .shiftboss/quarantine";
const TO_STRAYS: &str = "moved to .shiftboss/strays";
const DOUBLED: &str = "moved to .shiftboss/strays: it is in another queue as well";
const UNKNOWN: &str = "moved to .shiftboss/strays: it has neither a name nor data";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FsckOptions {
    pub repair: bool,
    /// Leave alone what was touched within this time; `None` if no process is at work.
    pub older_than: Option<Duration>,
}

/// What a crash left: docs/spool.md explains each, and how it is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    MissingDirectory,
    DeadOwner,
    Unowned,
    HalfWritten,
    OrphanedData,
    OrphanedName,
    Unregistered,
    HalfRemoved,
    WithoutData,
    Linked,
    Unreadable,
    Duplicated,
    Stray,
    Stale,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mended {
    pub finding: Finding,
    /// The file, relative to the spool, with `\xNN` for what is not text.
    pub path: String,
    /// What was done or, without repair, must be done.
    pub action: &'static str,
    pub mended: bool,
    /// Why it failed, if it was tried.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fsck {
    /// In the order of checking; none in a healthy spool.
    pub findings: Vec<Mended>,
    /// What is in quarantine now. That is not a finding.
    pub quarantined: Vec<EntryName>,
}

impl Fsck {
    /// Whether nothing is or was wrong: exit status 0.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub fn is_mended(&self) -> bool {
        self.findings.iter().all(|finding| finding.mended)
    }
}

struct Check<'s> {
    spool: &'s Spool,
    options: FsckOptions,
    findings: Vec<Mended>,
}

impl Spool {
    /// Checks the spool, which may be open without checks ([`Spool::load_unchecked`]), and repairs it.
    /// What could not be mended is a finding, not an error.
    pub fn fsck(&self, options: FsckOptions) -> Result<Fsck> {
        let mut check = Check { spool: self, options, findings: Vec::new() };
        check.directories()?;
        let _held = if options.repair { Some(self.wait_for_lock()?) } else { None };
        check.entries()?;
        Ok(Fsck { findings: check.findings, quarantined: self.quarantined()? })
    }
}

impl Check<'_> {
    /// Makes missing directories; without them nothing else can be mended.
    fn directories(&mut self) -> Result<()> {
        let (spool, layer) = (self.spool, self.spool.layer());
        if FORMAT.iter().all(|directory| layer.stat(Path::new(directory)) == Err(Errno::NOENT)) {
            return Err(SpoolError::NotASpool(spool.path().to_owned()));
        }
        for directory in FORMAT {
            self.directory(Path::new(directory))?;
        }
        if self.options.repair {
            layout::create(layer, spool.path(), spool.full())?;
        }
        spool.queues()?.iter().try_for_each(|queue| self.directory(&checkouts(queue)))
    }

    fn directory(&mut self, path: &Path) -> Result<()> {
        let layer = self.spool.layer();
        if !layer.exists(path)? {
            let make = || layout::ensure(layer, path).map(|()| true);
            self.found(Finding::MissingDirectory, path, "made", make);
        }
        Ok(())
    }

    /// Notes a finding, and mends it if that is wanted. If the repair returns `false`, there was nothing to mend: a
    /// process at work has ended it.
    fn found(
        &mut self,
        finding: Finding,
        path: &Path,
        action: &'static str,
        repair: impl FnOnce() -> Result<bool>,
    ) {
        let (mended, error) = match self.options.repair.then(repair) {
            Some(Ok(false)) => return,
            Some(Ok(true)) => (true, None),
            Some(Err(error)) => (false, Some(error.to_string())),
            None => (false, None),
        };
        let path = text(path.as_os_str().as_bytes());
        self.findings.push(Mended { finding, path, action, mended, error });
    }

    /// As [`Check::found`], if the file is there, and old enough that no process is working on it.
    fn left(
        &mut self,
        finding: Finding,
        path: &Path,
        action: &'static str,
        repair: impl FnOnce() -> Result<bool>,
    ) -> Result<()> {
        let is_old =
            |stat: FileStat| self.options.older_than.is_none_or(|limit| age(stat.modified) > limit);
        if self.spool.layer().look(path)?.is_some_and(is_old) {
            self.found(finding, path, action, repair);
        }
        Ok(())
    }

    /// Notes a file that belongs to nothing, and deletes it.
    fn deleted(&mut self, finding: Finding, path: &Path) -> Result<()> {
        let layer = self.spool.layer();
        self.left(finding, path, "deleted", || layer.unlink(path))
    }

    /// The kinds of damage, in the order in which they are mended: first what others hold, then what is in the wrong
    /// place, then what belongs to nothing.
    fn entries(&mut self) -> Result<()> {
        self.unread_notes()?;
        self.dead_owners()?;
        self.strays(&self.spool.survey()?)?;
        // Later checks must see the mended state.
        self.duplicates(&self.spool.survey()?)?;
        let survey = self.spool.survey()?;
        for (name, places) in &survey.places {
            let of_entry = of_entry(places);
            for place in &of_entry {
                match place {
                    Place::Queue(queue) => self.available(places, queue, name)?,
                    Place::Checkout(queue) if of_entry.len() == 1 => {
                        self.checkout(places, queue, name)?;
                    }
                    _ => {}
                }
            }
        }
        self.drafts(&survey)?;
        self.orphans(&self.spool.survey()?)?;
        // Notes about entries that are gone.
        self.spool.stale()?.iter().try_for_each(|path| self.deleted(Finding::Stale, path))
    }

    /// Unreadable notes. Without them their entries have no holder.
    fn unread_notes(&mut self) -> Result<()> {
        for name in layout::names(self.spool.layer(), CLAIMS)? {
            if self.spool.note(&name)?.is_none() {
                self.deleted(Finding::Stale, &under(CLAIMS, &name))?;
            }
        }
        Ok(())
    }

    fn dead_owners(&mut self) -> Result<()> {
        let spool = self.spool;
        let mut paths = Vec::new();
        if self.options.repair {
            let given = spool.reclaim_locked()?;
            paths.extend(given.iter().map(|one| available(&one.to, &one.name)));
        } else {
            let overdue = spool.overdue(&spool.dead_owners()?)?;
            paths.extend(overdue.iter().map(Note::checked_out));
        }
        for path in paths {
            if self.options.repair || spool.layer().exists(&path)? {
                self.found(Finding::DeadOwner, &path, "given back", || Ok(true));
            }
        }
        Ok(())
    }

    /// What is not an entry; and files that were being moved without a note: it is not known from where.
    fn strays(&mut self, survey: &Survey) -> Result<()> {
        let spool = self.spool;
        for (place, name) in &survey.strangers {
            let path = joined(&place.path(), name);
            self.left(Finding::Stray, &path, TO_STRAYS, || spool.move_to_strays(&path))?;
        }
        for name in survey.at(Place::Moving) {
            let path = under(MOVING, name);
            if spool.note(name)?.is_none() {
                self.left(Finding::Unowned, &path, TO_QUARANTINE, || {
                    spool.holding(name, || spool.quarantine(name, &path).map(|()| true))
                })?;
            }
        }
        Ok(())
    }

    /// Of the places of one entry, a queue is later than a checkout, because saving back writes the one before it
    /// removes the other; of two queues, the one that was touched last.
    fn duplicates(&mut self, survey: &Survey) -> Result<()> {
        let spool = self.spool;
        for (name, places) in &survey.places {
            let rank = |place: Place| {
                let stat = spool.layer().stat(&place.file(name)).ok()?;
                Some((matches!(place, Place::Queue(_)), stat.modified, place.file(name)))
            };
            let places = of_entry(places);
            if places.len() < 2 {
                continue;
            }
            let mut ranked: Vec<_> = places.into_iter().filter_map(rank).collect();
            ranked.sort();
            // The last one stays.
            ranked.pop();
            for (_, _, path) in ranked {
                self.left(Finding::Duplicated, &path, DOUBLED, || {
                    spool.holding(name, || spool.move_to_strays(&path))
                })?;
            }
        }
        Ok(())
    }

    fn checkout(&mut self, places: &[Place], queue: &QueueName, name: &EntryName) -> Result<()> {
        let spool = self.spool;
        let path = checked_out(queue, name);
        if spool.note(name)?.is_some() {
            return Ok(());
        }
        if places.contains(&Place::Data) {
            return self.left(Finding::Unowned, &path, "given back", || {
                spool.holding(name, || {
                    let back = spool.layer().rename(&path, &available(queue, name));
                    let there = back.none_if(Errno::NOENT).map_err(io("give back", &path))?;
                    // Its name may be lost, too.
                    Ok(there.is_some() && spool.register(name).map(|_| true)?)
                })
            });
        }
        self.left(Finding::HalfRemoved, &path, "removed", || {
            spool.holding(name, || {
                spool.layer().unlink(&path)?;
                spool.remove_rest(name).map(|()| true)
            })
        })
    }

    fn available(&mut self, places: &[Place], queue: &QueueName, name: &EntryName) -> Result<()> {
        let (spool, layer) = (self.spool, self.spool.layer());
        let (registered, data) = (places.contains(&Place::Registry), places.contains(&Place::Data));
        let path = available(queue, name);
        match (registered, data) {
            (true, true) if spool.is_readable(&path) => Ok(()),
            (true, true) if layer.look(&path)?.is_some_and(|stat| stat.linked) => {
                self.left(Finding::Linked, &path, "freed of its other names", || {
                    Err(io("open", &path)(Errno::MLINK))
                })
            }
            (false, true) => self.left(Finding::Unregistered, &path, "registered again", || {
                spool.holding(name, || Ok(layer.exists(&path)? && spool.register(name)?))
            }),
            (false, false) => {
                self.left(Finding::Stray, &path, UNKNOWN, || spool.move_to_strays(&path))
            }
            (true, data) => {
                let finding = if data { Finding::Unreadable } else { Finding::WithoutData };
                self.left(finding, &path, TO_QUARANTINE, || {
                    spool.holding(name, || {
                        let whole = layer.exists(&under(DATA, name))? && spool.is_readable(&path);
                        let damaged = !whole && layer.exists(&path)?;
                        Ok(damaged && spool.quarantine(name, &path).map(|()| true)?)
                    })
                })
            }
        }
    }

    fn drafts(&mut self, survey: &Survey) -> Result<()> {
        let spool = self.spool;
        for name in survey.at(Place::Tmp) {
            self.deleted(Finding::HalfWritten, &under(TMP, name))?;
        }
        for path in spool.layer().drafts().unwrap_or_default() {
            let delete = || self.deleted(Finding::HalfWritten, &path).map(|()| true);
            spool.unless_written(&path, delete)?;
        }
        Ok(())
    }

    fn orphans(&mut self, survey: &Survey) -> Result<()> {
        let spool = self.spool;
        for (name, places) in survey.places.iter().filter(|(_, places)| !has_entry(places)) {
            if !places.contains(&Place::Registry) {
                if places.contains(&Place::Data) {
                    self.deleted(Finding::OrphanedData, &under(DATA, name))?;
                }
                continue;
            }
            if spool.is_held(name)? || !spool.is_unseen(name)? {
                continue;
            }
            let give_up = || match spool.is_unseen(name)? {
                true => spool.remove_rest(name).map(|()| true),
                false => Ok(false),
            };
            let path = under(REGISTRY, name);
            self.left(Finding::OrphanedName, &path, "given up, with its data", || {
                spool.holding(name, give_up)
            })?;
        }
        Ok(())
    }
}
