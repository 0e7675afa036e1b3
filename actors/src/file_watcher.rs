//! FileWatcherActor: the input directory. It keeps the store's runs equal to the directory's
//! files, and starts, watches and restarts a FileTailActor for each run that has bytes to read.
//!
//! The tree starts it; connections ask it to [`Look`] before they say that there is no work.
//! Events, scans and timers all end in the same two steps for a run: look at its names
//! ([`FileWatcherActor::look_at`]), then act on what is there ([`FileWatcherActor::act_on`]).
//! It reads no bytes and knows no rows.

mod entry;
mod looks;
mod lost;
mod tails;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use tracing::{debug, error, info, warn};

use crate::directory::{self, Directory};
use crate::fetcher_file::{FileName, Named};
use crate::file_tail::{Changed, StopTail};
use crate::model::Run;
use crate::storage::messages::{
    AddRows, ClearAside, DeleteRun, KnownRuns, RegisterRuns, SetAside, SetDirectoryLost,
};
use crate::store::{StoreResult, StoredRun};
use crate::vital::Vital;
use crate::watch::{Happened, Watch};
pub use entry::TailLink;
use entry::{Entry, Phase};
pub use looks::{Look, Looked};
pub use tails::{StartTail, TailSeed, start_tail};

/// How often everything is looked at, events or none.
const RESCAN_EVERY: Duration = Duration::from_secs(60);
/// How often timers of the directory and of unclosed files are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long the store may take for a request before it is asked again.
const STORE_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay before the store is asked again.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Deleting a run of ten million rows takes minutes.
const DELETE_TIMEOUT: Duration = Duration::from_secs(3600);

/// What the watcher asks of the StorageActor.
#[derive(Clone)]
pub struct StorageLinks {
    /// All runs, once at the start.
    pub known: Recipient<KnownRuns>,
    /// New runs.
    pub register: Recipient<RegisterRuns>,
    /// Rows; handed on to the tails.
    pub add: Recipient<AddRows>,
    /// Runs that are gone.
    pub delete: Recipient<DeleteRun>,
    /// Files that are left out.
    pub aside: Recipient<SetAside>,
    /// Files that no longer are.
    pub clear: Recipient<ClearAside>,
    /// Whether the directory is there.
    pub lost: Recipient<SetDirectoryLost>,
}

/// Opens the directory, registers every run in it and drops those that are gone; answered when
/// that is done, so that the socket may listen. Loading goes on.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), String>")]
pub struct Start;

/// Ends all tails and the watch. The last message of its life.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopWatching;

/// The directory as it is watched now.
struct Open {
    directory: Rc<Directory>,
    /// `None` while the system has no watch left: everything is looked at every second.
    watch: Option<Watch>,
    events: Option<SpawnHandle>,
}

/// Watches the input directory. See the module's documentation.
pub struct FileWatcherActor {
    path: PathBuf,
    storage: StorageLinks,
    start_tail: StartTail,
    /// `None` while the directory is lost.
    open: Option<Open>,
    runs: BTreeMap<Run, Entry>,
    /// Names that are left out for good, with the reason that was logged.
    unfit: BTreeMap<OsString, String>,
    /// Runs that wait for a free tail.
    queue: VecDeque<Run>,
    tails: usize,
    generation: u64,
    looks: looks::Looks,
    /// Dropped with the actor: a panic here ends the process.
    _vital: Vital<String>,
}

impl FileWatcherActor {
    /// A watcher of the directory at `path`, which starts its tails through `start_tail`.
    #[must_use]
    pub fn new(
        path: PathBuf,
        storage: StorageLinks,
        start_tail: StartTail,
        vital: Vital<String>,
    ) -> Self {
        Self {
            path,
            storage,
            start_tail,
            open: None,
            runs: BTreeMap::new(),
            unfit: BTreeMap::new(),
            queue: VecDeque::new(),
            tails: 0,
            generation: 0,
            looks: looks::Looks::default(),
            _vital: vital,
        }
    }

    /// Takes what the store knows as the picture to be held against the directory.
    fn adopt(&mut self, known: Vec<StoredRun>) {
        for stored in known {
            let mut entry = Entry::new(FileName::of(stored.run.clone()));
            let run = stored.run.clone();
            entry.phase = if stored.deleting { Phase::Deleting } else { Phase::Waiting(stored) };
            self.runs.insert(run, entry);
        }
    }

    /// Handles all events that are there now, without waiting for any.
    fn drain(&mut self, ctx: &mut Context<Self>) {
        let Some(open) = &mut self.open else {
            return;
        };
        let Some(watch) = &mut open.watch else {
            return self.rescan(ctx);
        };
        let events = match watch.drain() {
            Ok(events) => events,
            Err(error) => {
                error!(%error, "The watch on the input directory failed; opening it again.");
                return self.lose(ctx);
            }
        };
        let touched = self.note_events(events.names);
        self.refresh(touched, ctx);
        if events.lost {
            self.lose(ctx);
        } else if events.overflow {
            warn!("The kernel dropped events of the input directory; looking at everything.");
            self.runs.values_mut().for_each(Entry::forget_writer);
            self.rescan(ctx);
        }
    }

    /// Takes events into the entries and tells which runs they touched.
    fn note_events(&mut self, names: Vec<(OsString, Happened)>) -> BTreeSet<Run> {
        let mut touched = BTreeSet::new();
        for (name, happened) in names {
            let file = match FileName::parse(&name) {
                Named::Fetcher(file) => file,
                Named::Bad(reason) => {
                    self.note_bad_name(&name, happened, reason.to_string());
                    continue;
                }
                Named::Other => continue,
            };
            let (run, growing) = (file.run.clone(), file.growing);
            let entry = self.runs.entry(run.clone()).or_insert_with(|| Entry::new(file));
            entry.note(growing, happened);
            touched.insert(run);
        }
        touched
    }

    fn note_bad_name(&mut self, name: &OsStr, happened: Happened, reason: String) {
        if matches!(happened, Happened::Removed | Happened::MovedAway) {
            self.is_fit(name);
        } else {
            self.leave_out(name, reason);
        }
    }

    /// Lists the directory. Returns all runs that are to be looked at: those there, and those known.
    fn scan(&mut self) -> BTreeSet<Run> {
        let Some(open) = &self.open else {
            return BTreeSet::new();
        };
        let names = match open.directory.names() {
            Ok(names) => names,
            Err(error) => {
                error!(%error, path = %self.path.display(), "Cannot list the input directory.");
                return BTreeSet::new();
            }
        };
        self.forget_unfit(&names);
        for name in names {
            match FileName::parse(&name) {
                Named::Fetcher(file) => {
                    let run = file.run.clone();
                    self.runs.entry(run).or_insert_with(|| Entry::new(file));
                }
                Named::Bad(reason) => self.leave_out(&name, reason.to_string()),
                Named::Other => {}
            }
        }
        self.runs.keys().cloned().collect()
    }

    fn rescan(&mut self, ctx: &mut Context<Self>) {
        let all = self.scan();
        self.refresh(all, ctx);
    }

    /// Brings the runs forward. Nothing else is handled before the new ones are registered.
    fn refresh(&mut self, runs: BTreeSet<Run>, ctx: &mut Context<Self>) {
        if let Some(registering) = self.advance(runs, ctx) {
            ctx.wait(registering);
        }
    }

    /// Looks at the runs and acts on what is there. The new ones are made known by the future.
    fn advance(
        &mut self,
        runs: BTreeSet<Run>,
        ctx: &mut Context<Self>,
    ) -> Option<ResponseActFuture<Self, ()>> {
        let (mut fresh, mut gone) = (Vec::new(), Vec::new());
        for run in runs {
            match self.look_at(&run) {
                Some(Found::File) if self.act_on(&run, ctx) => fresh.push(run),
                Some(Found::File) | None => {}
                Some(Found::Nothing) => gone.push(run),
            }
        }
        // New runs first: a fetcher whose run was replaced keeps its id (spec 4, "At start").
        let registering = self.register(fresh);
        for run in gone {
            self.drop_run(&run, ctx);
        }
        registering
    }

    /// Looks at both names of a run. `None` when that could not be done: it stays as it is.
    fn look_at(&mut self, run: &Run) -> Option<Found> {
        let (open, entry) = (self.open.as_ref()?, self.runs.get(run)?);
        let (growing, whole) = (entry.name.spelled(true), entry.name.spelled(false));
        let (first, second) = match both_names(&open.directory, &growing, &whole) {
            Ok(seen) => seen,
            Err(error) => {
                warn!(%run, %error, "Cannot look at a fetcher file; trying again later.");
                return None;
            }
        };
        let first = self.fit(&growing, first);
        let second = self.fit(&whole, second);
        let entry = self.runs.get_mut(run)?;
        entry.saw(first, second);
        entry.settle();
        let emptied = std::mem::take(&mut entry.emptied) && !matches!(entry.phase, Phase::New);
        let there = entry.file().is_some() && !emptied;
        Some(if there { Found::File } else { Found::Nothing })
    }

    /// Brings one run forward whose file is there. True when it is to be registered.
    fn act_on(&mut self, run: &Run, ctx: &mut Context<Self>) -> bool {
        let Some(entry) = self.runs.get_mut(run) else {
            return false;
        };
        let Some(file) = entry.file() else {
            return false;
        };
        if entry.is_newly_doubled() {
            warn!(%run, "Both the growing and the complete file are there: the complete one counts.");
        }
        match &entry.phase {
            Phase::New => return true,
            Phase::Tailing(tail) => tail.changed.do_send(Changed(entry.target())),
            Phase::Complete(read) => return !read.is_some_and(|read| read.is_as_read(&file)),
            Phase::Aside(failed) if *failed != Some(file) => {
                entry.failures = 0;
                let name = escaped(entry.file_name().as_ref());
                self.storage.clear.do_send(ClearAside { name });
                return true;
            }
            Phase::Waiting(stored) if !entry.queued => {
                let stored = stored.clone();
                self.begin(run, stored, ctx);
            }
            Phase::Deleting if entry.generation == 0 => self.drop_run(run, ctx),
            _ => {}
        }
        false
    }

    /// A future that makes runs known to the store and starts their tails.
    fn register(&mut self, runs: Vec<Run>) -> Option<ResponseActFuture<Self, ()>> {
        if runs.is_empty() {
            return None;
        }
        for run in &runs {
            if let Some(entry) = self.runs.get_mut(run) {
                entry.phase = Phase::Registering;
            }
        }
        let sent = self.storage.register.send(RegisterRuns { runs: runs.clone() });
        let registered = sent.timeout(STORE_TIMEOUT).into_actor(self);
        Some(Box::pin(registered.map(|answer, watcher, ctx| match answer {
            Ok(Ok(stored)) => {
                for stored in stored {
                    let run = stored.run.clone();
                    debug!(%run, complete = stored.complete, "Registered.");
                    watcher.begin(&run, stored, ctx);
                }
            }
            Ok(Err(error)) => watcher.register_later(runs, &error, ctx),
            Err(error) => watcher.register_later(runs, &error, ctx),
        })))
    }

    fn register_later(
        &mut self,
        runs: Vec<Run>,
        error: &dyn std::error::Error,
        ctx: &mut Context<Self>,
    ) {
        warn!(%error, "Runs could not be registered yet; trying again.");
        for run in &runs {
            if let Some(entry) = self.runs.get_mut(run) {
                entry.phase = Phase::New;
            }
        }
        let runs = runs.into_iter().collect();
        ctx.run_later(STORE_RETRY, |watcher, ctx| watcher.refresh(runs, ctx));
    }

    /// Both names of a run are gone: ends its tail and deletes its rows.
    fn drop_run(&mut self, run: &Run, ctx: &mut Context<Self>) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        match &entry.phase {
            Phase::Deleting if entry.generation > 0 => return,
            Phase::New => {
                self.runs.remove(run);
                return;
            }
            Phase::Tailing(tail) => tail.stop.do_send(StopTail),
            _ => {}
        }
        info!(%run, "The run's file is gone: deleting its rows.");
        entry.phase = Phase::Deleting;
        self.generation += 1;
        entry.generation = self.generation;
        self.delete(run.clone(), ctx);
    }

    fn delete(&mut self, run: Run, ctx: &mut Context<Self>) {
        let sent = self.storage.delete.send(DeleteRun { run: run.clone() });
        let deleted = sent.timeout(DELETE_TIMEOUT).into_actor(self).map(
            move |answer: Result<StoreResult<()>, _>, watcher, ctx| {
                if matches!(answer, Ok(Ok(()))) {
                    watcher.deleted(&run, ctx);
                } else {
                    warn!(%run, ?answer, "A run could not be deleted yet; trying again.");
                    ctx.run_later(STORE_RETRY, |watcher, ctx| watcher.delete(run, ctx));
                }
            },
        );
        ctx.spawn(deleted);
    }

    fn deleted(&mut self, run: &Run, ctx: &mut Context<Self>) {
        let Some(old) = self.runs.remove(run) else {
            return;
        };
        // Its file may have been made anew meanwhile.
        self.runs.insert(run.clone(), Entry::new(old.name));
        self.refresh(BTreeSet::from([run.clone()]), ctx);
    }

    /// The file found under a name, unless it is something that is never read.
    fn fit(&mut self, name: &str, entry: directory::Entry) -> Option<directory::FileState> {
        match entry {
            directory::Entry::File(state) => {
                self.is_fit(name.as_ref());
                Some(state)
            }
            directory::Entry::Absent => {
                self.is_fit(name.as_ref());
                None
            }
            directory::Entry::Unfit(reason) => {
                self.leave_out(name.as_ref(), reason);
                None
            }
        }
    }

    /// Says once, in the log and in status, that a name is left out.
    fn leave_out(&mut self, name: &OsStr, reason: String) {
        if self.unfit.get(name) == Some(&reason) {
            return;
        }
        let shown = escaped(name);
        warn!(file = shown, reason, "An input file is set aside.");
        self.storage.aside.do_send(SetAside { name: shown, reason: reason.clone() });
        self.unfit.insert(name.to_owned(), reason);
    }

    fn is_fit(&mut self, name: &OsStr) {
        if self.unfit.remove(name).is_some() {
            self.storage.clear.do_send(ClearAside { name: escaped(name) });
        }
    }

    /// Takes back the notes about names that are no longer there.
    fn forget_unfit(&mut self, names: &[OsString]) {
        let there: BTreeSet<&OsString> = names.iter().collect();
        let gone: Vec<_> =
            self.unfit.keys().filter(|name| !there.contains(name)).cloned().collect();
        for name in gone {
            self.is_fit(&name);
        }
    }
}

/// What a look at a run's names found.
enum Found {
    File,
    Nothing,
}

/// Looks at both names. A rename from the growing to the complete name in between is never missed
/// in this order; the third look finds one the other way.
fn both_names(
    directory: &Directory,
    growing: &str,
    whole: &str,
) -> io::Result<(directory::Entry, directory::Entry)> {
    let first = directory.look(growing.as_ref())?;
    let second = directory.look(whole.as_ref())?;
    let neither = first == directory::Entry::Absent && second == directory::Entry::Absent;
    Ok((if neither { directory.look(growing.as_ref())? } else { first }, second))
}

/// A name as text: control characters and bytes that are not UTF-8 escaped.
fn escaped(name: &OsStr) -> String {
    name.as_encoded_bytes().escape_ascii().to_string()
}

impl Actor for FileWatcherActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(RESCAN_EVERY, |watcher, ctx| watcher.rescan(ctx));
        ctx.run_interval(TICK, Self::tick);
    }
}

impl Handler<Start> for FileWatcherActor {
    type Result = ResponseActFuture<Self, Result<(), String>>;

    fn handle(&mut self, _: Start, _: &mut Self::Context) -> Self::Result {
        let known = self.storage.known.send(KnownRuns).timeout(STORE_TIMEOUT);
        Box::pin(known.into_actor(self).then(|known, watcher, ctx| {
            let opened = match known {
                Ok(Ok(known)) => {
                    watcher.adopt(known);
                    watcher.open_directory(ctx)
                }
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = opened {
                return Box::pin(fut::ready(Err(reason))) as ResponseActFuture<_, _>;
            }
            let all = watcher.scan();
            match watcher.advance(all, ctx) {
                Some(registering) => Box::pin(registering.map(|(), _, _| Ok(()))),
                None => Box::pin(fut::ready(Ok(()))),
            }
        }))
    }
}

impl Handler<StopWatching> for FileWatcherActor {
    type Result = ();

    fn handle(&mut self, _: StopWatching, ctx: &mut Self::Context) {
        for entry in self.runs.values() {
            if let Phase::Tailing(tail) = &entry.phase {
                tail.stop.do_send(StopTail);
            }
        }
        ctx.stop();
    }
}
