//! Fetches a list: runs a command whose standard output is the list, and puts it in place of the
//! former one once it is whole and looks right. Until then the former one stays.
//!
//! `shiftboss fetch` and the daemon's own fetchers call it. Settings in, outcome out: when to run, what to show and what to exit with
//! is the caller's. What waits for a lock or for a sync is done beside the runtime's thread; the growing
//! file is written on it. [`claim`] is the directory's side, [`intake`] the command's output.

mod claim;
mod error;
mod intake;
mod name;
mod runs;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shiftboss_protocol::fetcher_file::SkipReason;
use tokio::sync::Notify;

use crate::child::{CommandSpec, Guardian, Output, Stream};
use crate::schedule::handover::ChangedFile;
use crate::schedule::paths::Changed;
use claim::{Claim, Part};
pub use error::FetchError;
use intake::{Intake, Tally};
pub use name::ListName;
pub use runs::runs;

/// What is fetched, by what, into where, and what it has to look like.
#[derive(Debug, Clone)]
pub struct Settings {
    pub input: PathBuf,
    /// The list's name: the fetcher's, for the daemon.
    pub name: ListName,
    /// The program that writes the list.
    pub program: OsString,
    /// What it is called with.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; `None`: where we do.
    pub directory: Option<PathBuf>,
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    /// A list has at least so many lines. One at least is always asked for.
    pub min_lines: u64,
    /// A list has at least this share, from 0 to 1, of the lines of the last complete one.
    pub min_share: f64,
    /// The daemon hands its lines out while it is fetched, whatever becomes of it.
    pub live: bool,
    /// The file in which the command is given what changed; `None`: nothing is watched.
    pub changed_file: Option<PathBuf>,
}

/// Shows a run while it goes on.
pub trait Observer: Send {
    /// A line that the command writes on standard error, with its end.
    fn complaint(&mut self, line: &[u8]);
    /// A line that the daemon will skip. Only the first of a run are reported.
    fn faulty(&mut self, line: u64, reason: SkipReason);
    /// How many good lines there are so far.
    fn lines(&mut self, accepted: u64);
}

/// A list that is in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    pub file: String,
    /// Lines that the daemon takes.
    pub accepted: u64,
    pub faulty: u64,
}

/// Fetches one list, any number of times.
pub struct Fetcher {
    settings: Settings,
    guardian: Guardian,
    changed_file: Option<ChangedFile>,
    /// The directory, and the right to deliver there. None until it was claimed.
    claim: Option<Arc<Claim>>,
}

impl Fetcher {
    /// A fetcher whose commands `guardian` starts. Nothing is touched yet.
    pub fn new(settings: Settings, guardian: Guardian) -> Self {
        let changed_file = settings.changed_file.clone().map(ChangedFile);
        Self { settings, guardian, changed_file, claim: None }
    }

    /// Claims the list for this process, until the fetcher is dropped; claims it anew when another
    /// directory has taken the place of the one it was claimed in.
    pub async fn claim(&mut self) -> Result<(), FetchError> {
        self.claimed().await.map(|_| ())
    }

    /// Gives the list up, so that others may fetch it until this one runs again.
    pub fn release(&mut self) {
        self.claim = None;
    }

    async fn claimed(&mut self) -> Result<Arc<Claim>, FetchError> {
        if let Some(claim) = self.claim.as_ref().filter(|claim| claim.is_current()) {
            return Ok(Arc::clone(claim));
        }
        self.claim = None;
        let (input, name) = (self.settings.input.clone(), self.settings.name.clone());
        let claim = blocking(move || Claim::new(&input, &name)).await?;
        Ok(Arc::clone(self.claim.insert(Arc::new(claim))))
    }

    /// Runs the command once for what changed, to its end or until `stop` resolves. Whenever this is dropped, the
    /// command is killed and its list thrown away.
    pub async fn run(
        &mut self,
        changed: Changed,
        observer: Box<dyn Observer>,
        stop: impl Future<Output = ()>,
    ) -> Result<Delivered, FetchError> {
        let claim = self.claimed().await?;
        let live = self.settings.live;
        let (part, file) = blocking(move || Part::begin(claim, live)).await?;
        let intake = Arc::new(Mutex::new(Intake::new(file, observer)));
        self.command(changed, &intake, stop).await?;
        let tally = lock(&intake).finish().map_err(|source| part.unwritten(source))?;
        // The intake's descriptor is closed before the file gets its name.
        drop(intake);
        let (min_lines, min_share) = (self.settings.min_lines, self.settings.min_share);
        blocking(move || deliver(part, tally, min_lines, min_share)).await
    }

    /// Runs the command into the intake.
    async fn command(
        &self,
        changed: Changed,
        intake: &Arc<Mutex<Intake>>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), FetchError> {
        let broken = Arc::new(Notify::new());
        let mut spec = self.spec(intake, &broken);
        if let Some(file) = &self.changed_file {
            file.give(&mut spec, changed).await.map_err(FetchError::Changed)?;
        }
        let mut running = self.guardian.start(spec)?;
        let mut is_stopped = false;
        tokio::select! {
            _ = running.wait() => {}
            () = broken.notified() => running.terminate(),
            () = stop => {
                is_stopped = true;
                running.terminate();
            }
        }
        let end = running.wait().await;
        let is_broken = lock(intake).is_broken();
        match end {
            _ if is_stopped => Err(FetchError::Stopped),
            // The intake returns the error when it is finished.
            _ if is_broken => Ok(()),
            end if end.is_success() => Ok(()),
            end => Err(FetchError::Command { end, time_limit: self.settings.time_limit }),
        }
    }

    fn spec(&self, intake: &Arc<Mutex<Intake>>, broken: &Arc<Notify>) -> CommandSpec {
        let (intake, broken) = (Arc::clone(intake), Arc::clone(broken));
        let sink = move |stream, piece: &[u8]| {
            let mut intake = lock(&intake);
            match stream {
                Stream::Err => intake.complaint(piece),
                Stream::Out if intake.take(piece) => {}
                Stream::Out => broken.notify_one(),
            }
        };
        let settings = &self.settings;
        CommandSpec {
            arguments: settings.arguments.clone(),
            environment: settings.environment.clone(),
            directory: settings.directory.clone(),
            time_limit: settings.time_limit,
            grace: settings.grace,
            ..CommandSpec::new(&settings.program, Output::Sink(Box::new(sink)))
        }
    }
}

/// What may wait for a lock or a disk is done beside the runtime's thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FetchError::Interrupted)?
}

/// Both holders are on one thread; a panic of one leaves nothing that the other would trust.
fn lock(intake: &Mutex<Intake>) -> MutexGuard<'_, Intake> {
    intake.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a whole list in its place, if it is long enough.
fn deliver(
    part: Part,
    tally: Tally,
    min_lines: u64,
    min_share: f64,
) -> Result<Delivered, FetchError> {
    let Tally { accepted, faulty } = tally;
    if accepted == 0 {
        return Err(FetchError::NoLines { faulty });
    }
    if accepted < min_lines {
        return Err(FetchError::TooFew { accepted, min_lines });
    }
    if let Some((file, last)) = part.claim().last_complete()? {
        // Numbers of lines are far below 2^53: nothing is lost.
        if (accepted as f64) < min_share * last as f64 {
            return Err(FetchError::Shrunk { accepted, last, file, min_share });
        }
    }
    let file = part.publish()?;
    Ok(Delivered { file, accepted, faulty })
}
