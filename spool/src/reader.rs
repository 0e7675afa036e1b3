//! A waiting consumer: takes entries of one queue one after the other, in the order of their names or spread out, and
//! also reclaims what dead processes have left.
//!
//! It lists once and then learns of arrivals by inotify, so that taking costs the same from a long queue as from a
//! short one. Events are hints: without them, and now and then with them, it lists.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::warn;

use super::Spool;
use super::claim::{Note, Take};
use super::error::{Result, SpoolError, io};
use super::files;
use super::guard::Guard;
use super::layout;
use super::name::{EntryName, QueueName};
use super::reclaim::Reclaimed;
use super::wait::{Stop, Watch};

/// How often, at least, a waiting reader lists the queue.
const POLL: Duration = Duration::from_secs(1);
const RECLAIM: Duration = Duration::from_secs(1);
/// How often a reader removes leftovers.
const SWEEP: Duration = Duration::from_secs(10);
/// The first and the longest pause before retrying an entry that another process is just giving back.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After this many misses in a row, others have been here, and the listing is outdated.
const MISSES_MAX: u32 = 4;
/// How many entries that were given back are named in the log; the others are counted.
const NAMED_MAX: usize = 5;
/// For how many strangers a past warning is remembered.
const STRANGERS_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Always the first existing entry by name.
    #[default]
    Strict,
    /// From a random place on, so that several readers do not race for the same entry.
    Spread,
}

#[derive(Debug)]
struct Known {
    names: BTreeSet<EntryName>,
    order: Order,
    /// A spread reader continues after this name, and starts over after the last.
    place: Option<EntryName>,
}

impl Known {
    /// All that is there, by a new listing.
    fn replace(&mut self, listed: Vec<EntryName>) {
        self.names = listed.into_iter().collect();
        self.missed();
    }

    fn next(&mut self) -> Option<EntryName> {
        let behind = |place| self.names.range((Excluded(place), Unbounded)).next();
        let next = self.place.as_ref().and_then(behind).or_else(|| self.names.first())?.clone();
        self.names.remove(&next);
        self.place = (self.order == Order::Spread).then(|| next.clone());
        Some(next)
    }

    /// Another process was at this place: a spread reader goes to another.
    fn missed(&mut self) {
        if self.order == Order::Spread && !self.names.is_empty() {
            let places = self.names.len() as u64;
            self.place = self.names.iter().nth((files::random() % places) as usize).cloned();
        }
    }
}

#[derive(Debug)]
pub struct Reader {
    spool: Spool,
    queue: QueueName,
    known: Known,
    watch: Option<Watch>,
    listed: Option<Instant>,
    reclaimed: Option<Instant>,
    swept: Option<Instant>,
    /// Entries that others were working on, to retry at that time.
    busy: Vec<EntryName>,
    again: Instant,
    pause: Duration,
    warned: HashSet<EntryName>,
}

impl Spool {
    /// A reader of a queue, which is made if it is missing.
    pub fn reader(&self, queue: &QueueName, order: Order) -> Result<Reader> {
        self.ensure_queue(queue)?;
        Ok(Reader {
            spool: self.clone(),
            queue: queue.clone(),
            known: Known { names: BTreeSet::new(), order, place: None },
            watch: None,
            listed: None,
            reclaimed: None,
            swept: None,
            busy: Vec::new(),
            again: Instant::now(),
            pause: PAUSE_MIN,
            warned: HashSet::new(),
        })
    }
}

impl Reader {
    /// Waits for the next entry; `None` if the signal was given, or none came within `limit`. After an error it may
    /// be called again.
    pub fn dequeue(&mut self, stop: &Stop, limit: Option<Duration>) -> Result<Option<Guard>> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        while !stop.is_set() {
            if let Some(guard) = self.dequeue_available()? {
                return Ok(Some(guard));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            self.wait(stop, left)?;
        }
        Ok(None)
    }

    /// The next available entry, without waiting. After an error it may be called again.
    pub fn dequeue_available(&mut self) -> Result<Option<Guard>> {
        self.reclaim();
        self.refresh()?;
        let mut misses = 0;
        while let Some(name) = self.known.next() {
            let take = self.spool.take(&self.queue, &name).inspect_err(|_| {
                // It is still there, and next.
                self.known.names.insert(name.clone());
            })?;
            match take {
                Take::Claimed(note) => match self.guard(note)? {
                    Some(guard) => return Ok(Some(guard)),
                    None => continue,
                },
                Take::Gone => {}
                Take::Busy => self.busy.push(name),
                Take::Stranger(why) => {
                    self.warn(name, why);
                    continue;
                }
            }
            misses += 1;
            self.known.missed();
            if misses >= MISSES_MAX && self.known.order == Order::Spread {
                misses = 0;
                self.list()?;
            }
        }
        Ok(None)
    }

    fn guard(&mut self, note: Note) -> Result<Option<Guard>> {
        self.pause = PAUSE_MIN;
        match self.spool.guard(note) {
            Err(error @ SpoolError::Quarantined(..)) => {
                warn!(%error, "An entry was moved to quarantine.");
                Ok(None)
            }
            result => result,
        }
    }

    /// Warns once for each stranger; the monitor reports it as long as it is there.
    fn warn(&mut self, name: EntryName, why: &'static str) {
        if self.warned.contains(&name) || self.warned.len() >= STRANGERS_MAX {
            return;
        }
        warn!(queue = %self.queue, %name, why, "What has this name in the queue is not an entry; it is left alone.");
        self.warned.insert(name);
    }

    fn wait(&mut self, stop: &Stop, left: Option<Duration>) -> Result<()> {
        let mut time = POLL.min(left.unwrap_or(POLL));
        if !self.busy.is_empty() {
            time = time.min(self.again.saturating_duration_since(Instant::now()));
        }
        let descriptor = self.watch.as_ref().map(Watch::as_fd);
        let path = self.spool.path().join(self.queue.as_os_str());
        stop.wait_with(descriptor, time).map_err(io("wait for entries in", &path))
    }

    /// Learns what has arrived, lists if that is unknown, and retries what others were working on.
    fn refresh(&mut self) -> Result<()> {
        let arrivals = self.watch.as_ref().map(Watch::drain).unwrap_or_default();
        if arrivals.ended {
            self.watch = None;
        }
        let old = |listed: Instant| self.known.names.is_empty() && listed.elapsed() >= POLL;
        let unwatched = self.watch.is_none() && self.known.names.is_empty();
        if arrivals.missed || arrivals.ended || unwatched || self.listed.is_none_or(old) {
            self.list()?;
        }
        self.known.names.extend(arrivals.names);
        if !self.busy.is_empty() && self.again <= Instant::now() {
            self.known.names.extend(self.busy.drain(..));
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            self.again = Instant::now() + self.pause;
        }
        Ok(())
    }

    /// Watches before it lists, so that nothing comes between.
    fn list(&mut self) -> Result<()> {
        let path = Path::new(self.queue.as_os_str());
        if self.watch.is_none() {
            self.spool.ensure_queue(&self.queue)?;
            self.watch = Watch::new(&self.spool.path().join(path));
        }
        self.known.replace(layout::entries(self.spool.layer(), path)?);
        self.listed = Some(Instant::now());
        Ok(())
    }

    /// A failure to reclaim does not keep the reader from its own work.
    fn reclaim(&mut self) {
        if self.reclaimed.is_some_and(|last| last.elapsed() < RECLAIM) {
            return;
        }
        self.reclaimed = Some(Instant::now());
        match self.spool.reclaim() {
            Ok(given) => log_reclaimed(&given),
            Err(error) => warn!(%error, "What dead processes left could not be given back."),
        }
        if self.swept.is_none_or(|last| last.elapsed() >= SWEEP) {
            self.swept = Some(Instant::now());
            if let Err(error) = self.spool.sweep() {
                warn!(%error, "What others left half-written could not be removed.");
            }
        }
    }
}

/// One line for everything that one pass gave back: a killed process may have had thousands of entries.
fn log_reclaimed(given: &[Reclaimed]) {
    if given.is_empty() {
        return;
    }
    let mut counts = BTreeMap::<&str, usize>::new();
    given.iter().for_each(|one| *counts.entry(&one.whence).or_default() += 1);
    let which = first_few(counts.iter().map(|(whence, count)| format!("{count} {whence}")));
    let names =
        first_few(given.iter().map(|one| format!("{} (attempt {})", one.name, one.attempts)));
    warn!(entries = given.len(), %which, %names, "Entries were given back.");
}

fn first_few(mut all: impl ExactSizeIterator<Item = String>) -> String {
    let named = all.by_ref().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
