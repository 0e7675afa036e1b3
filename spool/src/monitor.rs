//! Looking on: what in a spool is too old, orphaned, in two places, or not an entry (spec 4). Once,
//! or again and again with the beginnings and ends of problems. It changes nothing.
//!
//! A survey of a spool at work sees much that is not so: an entry that moves while it looks may be in
//! two places or in none. So each suspicion is looked at again, by itself, several times; what stands
//! then is reported.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use serde::Serialize;

use super::Spool;
use super::claim::{FOREVER, Holder};
use super::error::{self, Result};
use super::files;
use super::layer::Kind;
use super::layout::{QUARANTINE, TMP, joined, under};
use super::name::{EntryName, QueueName, text};
use super::stop::Stop;
use super::survey::{Place, Survey, registration};
use super::time::unix_seconds;

/// A suspicion is looked at again so often, with such pauses.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// What is too old, and when to say so.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Oldest temporary file.
    pub tmp: Duration,
    /// Oldest checkout.
    pub checkout: Duration,
    /// Oldest available entry of a queue; a queue that is not named has no limit.
    pub queues: HashMap<QueueName, Duration>,
    /// How often the daemon looks.
    pub every: Duration,
    /// A problem begins when it is seen in more scans than this, one after the other.
    pub alert_after: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let ten_minutes = Duration::from_secs(600);
        Self {
            tmp: ten_minutes,
            checkout: ten_minutes,
            queues: HashMap::new(),
            every: Duration::from_secs(15),
            alert_after: 2,
        }
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// It is older than the limit.
    TooOld,
    /// It has no registered name, or the name no entry.
    Orphaned,
    /// It is in two queues or checkouts.
    Duplicated,
    /// It is not a regular file, or has a name that no entry can have.
    Foreign,
}

/// A problem. The time of the file is a part of it: a later phase of the same entry is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// Where; several places only for what is duplicated.
    pub places: Vec<Place>,
    /// The file's name, with `\xNN` for what is not text.
    pub name: String,
    /// When it was last modified or touched.
    #[serde(serialize_with = "unix_seconds")]
    pub modified: SystemTime,
    #[serde(skip)]
    bytes: Box<[u8]>,
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In order; none in a healthy spool.
    pub problems: Vec<Problem>,
    /// Entries that were set aside, unreadable. They wait for somebody, and are no problem.
    pub quarantined: Vec<EntryName>,
}

impl Spool {
    /// Looks once.
    ///
    /// # Errors
    /// When a directory cannot be listed.
    pub fn monitor(&self, limits: &Limits) -> Result<Report> {
        let survey = self.survey()?;
        let mut problems = self.suspicions(&survey, limits)?;
        let never = Stop::new().map_err(|source| error::SpoolError::Io {
            doing: "wait while looking at",
            path: self.path().into(),
            source,
        })?;
        for _ in 0..LOOKS {
            if problems.is_empty() || never.wait(PAUSE) {
                break;
            }
            problems = self.standing(problems)?;
        }
        problems.sort();
        Ok(Report { problems, quarantined: self.quarantined()? })
    }

    fn suspicions(&self, survey: &Survey, limits: &Limits) -> Result<Vec<Problem>> {
        let mut found = Suspicions { spool: self, found: Vec::new() };
        for name in &survey.tmp {
            found.too_old(&Place::Tmp, name, limits.tmp)?;
            if !survey.owns_draft(name) {
                found.add(ProblemKind::Orphaned, vec![Place::Tmp], name.as_bytes())?;
            }
        }
        for (place, names) in &survey.placed {
            let limit = match place {
                Place::Queue(queue) => limits.queues.get(queue).copied(),
                _ => Some(limits.checkout),
            };
            for name in names {
                if let Some(limit) = limit {
                    found.too_old(place, name, limit)?;
                }
                if !survey.registry.contains(name) {
                    found.add(ProblemKind::Orphaned, vec![place.clone()], name.as_bytes())?;
                }
            }
        }
        for name in survey.data.difference(&survey.registry) {
            found.add(ProblemKind::Orphaned, vec![Place::Data], name.as_bytes())?;
        }
        for name in survey.unplaced() {
            found.add(ProblemKind::Orphaned, vec![Place::Registry], name.as_bytes())?;
        }
        for (name, places) in survey.duplicated() {
            found.add(ProblemKind::Duplicated, places, name.as_bytes())?;
        }
        for (place, name) in &survey.strangers {
            found.add(ProblemKind::Foreign, vec![place.clone()], name)?;
        }
        Ok(found.found)
    }

    /// The problems that still are.
    fn standing(&self, problems: Vec<Problem>) -> Result<Vec<Problem>> {
        let mut standing = Vec::with_capacity(problems.len());
        for problem in problems {
            if self.stands(&problem)? {
                standing.push(problem);
            }
        }
        Ok(standing)
    }

    fn stands(&self, problem: &Problem) -> Result<bool> {
        for place in &problem.places {
            let path = joined(&place.path(), &problem.bytes);
            match self.layer().stat(&path) {
                Ok(stat) if stat.modified == problem.modified => {}
                // One of a duplicated name's files has another time than the other.
                Ok(_) if problem.kind == ProblemKind::Duplicated => {}
                Ok(_) | Err(Errno::NOENT) => return Ok(false),
                Err(errno) => return Err(error::io("look at", &path)(errno)),
            }
        }
        let Ok(name) = EntryName::new(&problem.bytes) else { return Ok(true) };
        match (problem.kind, &problem.places[..]) {
            (ProblemKind::Orphaned, [Place::Registry]) => self.is_nobodys(&name),
            (ProblemKind::Orphaned, [Place::Tmp]) => Ok(true),
            (ProblemKind::Orphaned, _) => Ok(!files::exists(self.layer(), &registration(&name))?),
            (ProblemKind::TooOld, [Place::Checkout(_)]) => Ok(!self.is_delayed(&name)?),
            _ => Ok(true),
        }
    }

    /// Whether a name has no entry, and nobody is at one: publishing it, or holding it.
    fn is_nobodys(&self, name: &EntryName) -> Result<bool> {
        for path in [under(TMP, name), under(QUARANTINE, name)] {
            if files::exists(self.layer(), &path)? {
                return Ok(false);
            }
        }
        Ok(!self.is_held(name)? && self.is_unseen(name)?)
    }

    /// Whether a checkout ends by itself, at a time that was said.
    fn is_delayed(&self, name: &EntryName) -> Result<bool> {
        let holder = self.note(name)?.map(|note| note.holder);
        Ok(matches!(holder, Some(Holder::Until(time)) if time != FOREVER))
    }
}

struct Suspicions<'s> {
    spool: &'s Spool,
    found: Vec<Problem>,
}

impl Suspicions<'_> {
    /// Notes a problem, unless its file is gone by now.
    fn add(&mut self, kind: ProblemKind, places: Vec<Place>, bytes: &[u8]) -> Result<()> {
        let Some(place) = places.first() else { return Ok(()) };
        let path = joined(&place.path(), bytes);
        match self.spool.layer().stat(&path) {
            Ok(stat) => {
                let (name, modified, bytes) = (text(bytes), stat.modified, bytes.into());
                self.found.push(Problem { kind, places, name, modified, bytes });
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(error::io("look at", &path)(errno)),
        }
    }

    fn too_old(&mut self, place: &Place, name: &EntryName, limit: Duration) -> Result<()> {
        let path = place.file(name);
        let stat = match self.spool.layer().stat(&path) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat.map_err(error::io("look at", &path))?,
        };
        let age = SystemTime::now().duration_since(stat.modified).unwrap_or_default();
        if age > limit && stat.kind == Kind::File {
            self.add(ProblemKind::TooOld, vec![place.clone()], name.as_bytes())?;
        }
        Ok(())
    }
}
