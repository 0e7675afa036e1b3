//! Monitoring: what in a spool is too old, orphaned, in two places, or not an entry (spec 4). Once, or repeatedly with
//! the beginnings and ends of problems. It changes nothing.
//!
//! A survey of a spool in use may be wrong: an entry that moves meanwhile may be seen in two places or in none. So what
//! looks wrong is checked again several times; only what every look sees is reported.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Spool;
use super::claim::{FOREVER, Holder};
use super::entry::{age, unix_seconds};
use super::error::Result;
use super::files::joined;
use super::name::{EntryName, QueueName, text};
use super::survey::{Place, has_entry, of_entry};
use super::wait::pause;

/// How often to look again, and with what pauses, while something looks wrong.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct Limits {
    pub tmp: Duration,
    pub checkout: Duration,
    /// Oldest available entry of a queue; a queue that is not named has no limit.
    pub queues: HashMap<QueueName, Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        let ten_minutes = Duration::from_secs(600);
        Self { tmp: ten_minutes, checkout: ten_minutes, queues: HashMap::new() }
    }
}

/// What is wrong with a file: docs/spool.md explains each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    TooOld,
    Orphaned,
    Duplicated,
    Linked,
    Foreign,
}

/// A problem. The file's time is part of it: a later phase of the same entry is another problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Problem {
    pub kind: ProblemKind,
    /// Where it is; several places only for duplicates.
    pub places: Vec<Place>,
    /// The file's name, with `\xNN` for what is not text.
    pub name: String,
    /// When it was last modified or touched.
    #[serde(serialize_with = "unix_seconds")]
    pub modified: SystemTime,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In order; none in a healthy spool.
    pub problems: Vec<Problem>,
    /// Unreadable entries in quarantine. They wait for an operator, and are not problems.
    pub quarantined: Vec<EntryName>,
}

impl Spool {
    /// Looks once, and again as long as something looks wrong.
    pub fn monitor(&self, limits: &Limits) -> Result<Report> {
        let mut problems = self.suspicions(limits)?;
        for _ in 0..LOOKS {
            if problems.is_empty() {
                break;
            }
            pause(PAUSE);
            let again = self.suspicions(limits)?;
            problems.retain(|problem| again.contains(problem));
        }
        Ok(Report { problems: problems.into_iter().collect(), quarantined: self.quarantined()? })
    }

    /// What looks wrong now. A file that is gone when it is checked was in motion.
    fn suspicions(&self, limits: &Limits) -> Result<BTreeSet<Problem>> {
        use ProblemKind as Kind;
        let survey = self.survey()?;
        let mut found = BTreeSet::new();
        let mut suspect = |kind, places, name, modified| {
            found.insert(Problem { kind, places, name: text(name), modified });
        };
        for (name, places) in &survey.places {
            let (entries, is_registered) = (of_entry(places), places.contains(&Place::Registry));
            for place in places {
                let (limit, is_orphan) = match place {
                    Place::Tmp => (Some(&limits.tmp), !survey.owns_draft(name)),
                    Place::Queue(queue) => (limits.queues.get(queue), !is_registered),
                    Place::Checkout(_) => (Some(&limits.checkout), !is_registered),
                    Place::Data if !is_registered => (None, true),
                    Place::Registry if self.is_nobodys(name, places)? => (None, true),
                    _ => continue,
                };
                let Some(stat) = self.layer().look(&place.file(name))? else { continue };
                let is_old = limit.is_some_and(|limit| age(stat.modified) > *limit);
                let kinds = [
                    (Kind::TooOld, is_old && !self.ends_by_itself(place, name)?),
                    (Kind::Linked, stat.linked && entries.contains(place)),
                    (Kind::Orphaned, is_orphan),
                ];
                for (kind, _) in kinds.into_iter().filter(|(_, is_so)| *is_so) {
                    suspect(kind, vec![place.clone()], name.as_bytes(), stat.modified);
                }
            }
            if entries.len() > 1
                && let Some(stat) = self.layer().look(&entries[0].file(name))?
            {
                suspect(Kind::Duplicated, entries, name.as_bytes(), stat.modified);
            }
        }
        for (place, name) in &survey.strangers {
            if let Some(stat) = self.layer().look(&joined(&place.path(), name))? {
                suspect(Kind::Foreign, vec![place.clone()], name, stat.modified);
            }
        }
        Ok(found)
    }

    /// Whether a registered name has no entry, and no process is publishing or holding it.
    fn is_nobodys(&self, name: &EntryName, places: &[Place]) -> Result<bool> {
        Ok(!has_entry(places) && !places.contains(&Place::Tmp) && !self.is_held(name)?)
    }

    /// Whether a checkout ends at a set time: until then it may be of any age.
    fn ends_by_itself(&self, place: &Place, name: &EntryName) -> Result<bool> {
        let is_out = matches!(place, Place::Checkout(_));
        let note = if is_out { self.note(name)? } else { None };
        Ok(note.is_some_and(|note| matches!(note.holder, Holder::Until(time) if time != FOREVER)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    pub event: Turn,
    #[serde(serialize_with = "unix_seconds")]
    pub time: SystemTime,
    pub problem: Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// It was seen in enough looks.
    Start,
    /// It was no longer seen.
    End,
}

/// Problems over several looks: which of them begin and end.
#[derive(Debug)]
pub struct Monitor {
    alert_after: u32,
    /// In how many looks, one after the other, each was seen.
    seen: BTreeMap<Problem, u32>,
}

impl Monitor {
    /// A problem begins when it is seen in more looks than this, one after the other.
    pub fn new(alert_after: u32) -> Self {
        Self { alert_after, seen: BTreeMap::new() }
    }

    /// Takes what a look found at this time; ends before beginnings, each in order.
    pub fn update(&mut self, report: &Report, time: SystemTime) -> Vec<Event> {
        let before = std::mem::take(&mut self.seen);
        for problem in &report.problems {
            let looks = before.get(problem).map_or(1, |looks| looks.saturating_add(1));
            self.seen.insert(problem.clone(), looks);
        }
        let enough = self.alert_after.saturating_add(1);
        let told =
            |(problem, looks): &(_, &u32)| **looks >= enough && !self.seen.contains_key(*problem);
        let ended = before.iter().filter(told).map(|(problem, _)| (Turn::End, problem));
        let begun = self.seen.iter().filter(|(_, looks)| **looks == enough);
        let turns = ended.chain(begun.map(|(problem, _)| (Turn::Start, problem)));
        turns.map(|(event, problem)| Event { event, time, problem: problem.clone() }).collect()
    }
}
