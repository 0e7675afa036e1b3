//! Fetches a list: runs a command whose standard output is the list, and puts it in place of the
//! former one once it is whole and looks right. Until then the former one stays.
//!
//! `shiftboss fetch` and the daemon's own fetchers call it. A [`List`] in, an outcome out: the caller decides when to
//! run and what to show. Waiting for a lock or a sync is done on other threads than the runtime's; the growing file is
//! written on that. [`claim`] is the directory's side, [`intake`] the command's output.

mod claim;
mod intake;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::child::{Guardian, Output, Stream};
use crate::config::List;
use crate::exit::ExitCode;
use crate::schedule::command_runs::{ChangedFile, run_command};
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Outcome, StartRun};
use claim::{Claim, Part};
use intake::Intake;
pub use intake::{Observer, Tally, read_lines};

/// A list that is in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    pub file: String,
    pub tally: Tally,
}

/// Why a list was not fetched. The former list is untouched, or exists beside the new one.
#[derive(Debug)]
pub struct FetchError {
    pub code: ExitCode,
    /// How the run ended, as a shell would report it, and why.
    pub outcome: Outcome,
}

impl FetchError {
    fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, outcome: Outcome::new(ExitCode::Unavailable as u8, message) }
    }

    /// Nothing is wrong with us or our directory.
    fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Unavailable, message)
    }
}

impl From<Outcome> for FetchError {
    fn from(outcome: Outcome) -> Self {
        Self { code: ExitCode::Unavailable, outcome }
    }
}

/// Fetches one list, any number of times.
pub struct Fetcher {
    input: PathBuf,
    list: Arc<List>,
    guardian: Guardian,
    changed_file: Option<ChangedFile>,
    /// The directory, and the right to deliver there. None until it was claimed.
    claim: Option<Arc<Claim>>,
}

impl Fetcher {
    /// A fetcher of lists for `input`, whose commands `guardian` starts; they are given what changed in `changed_file`, if
    /// anything is watched. Nothing is touched yet.
    pub fn new(
        input: PathBuf,
        list: List,
        guardian: Guardian,
        changed_file: Option<PathBuf>,
    ) -> Self {
        let (list, changed_file) = (Arc::new(list), changed_file.map(ChangedFile));
        Self { input, list, guardian, changed_file, claim: None }
    }

    /// The right to deliver the list, kept by this process until the fetcher is dropped; claimed anew when another
    /// directory has taken the place of the one it was claimed in.
    pub async fn claim(&mut self) -> Result<Arc<Claim>, FetchError> {
        if let Some(claim) = self.claim.as_ref().filter(|claim| claim.is_current()) {
            return Ok(Arc::clone(claim));
        }
        self.claim = None;
        let (input, name) = (self.input.clone(), self.list.name.clone());
        let claim = blocking(move || Claim::new(&input, &name)).await?;
        Ok(Arc::clone(self.claim.insert(Arc::new(claim))))
    }

    /// Runs the command once for what changed, to its end or until `stop` resolves. Whenever this is dropped, the
    /// command is killed and its list thrown away.
    pub async fn run(
        &mut self,
        changed: Changed,
        observer: Box<dyn Observer>,
        stop: oneshot::Receiver<()>,
    ) -> Result<Delivered, FetchError> {
        let claim = self.claim().await?;
        let live = self.list.live;
        let (part, file) = blocking(move || Part::begin(claim, live)).await?;
        let intake = Arc::new(Mutex::new(Intake::new(file, observer)));
        self.command(changed, &intake, stop).await?;
        let tally = lock(&intake).finish().map_err(|source| part.unwritten(source))?;
        // The intake's descriptor is closed before the file gets its name.
        drop(intake);
        let list = Arc::clone(&self.list);
        blocking(move || deliver(part, tally, &list)).await
    }

    /// Runs the command into the intake.
    async fn command(
        &self,
        changed: Changed,
        intake: &Arc<Mutex<Intake>>,
        stop: oneshot::Receiver<()>,
    ) -> Result<(), FetchError> {
        let broken = Arc::new(Notify::new());
        let (command, output) = (self.list.spec(), output(intake, &broken));
        let changed = self.changed_file.as_ref().map(|file| (file, changed));
        let mut is_stopped = false;
        let stop = async {
            tokio::select! {
                () = broken.notified() => {}
                _ = stop => is_stopped = true,
            }
        };
        let end = run_command(&self.guardian, command, changed, output, stop).await?;
        if is_stopped {
            return Err(FetchError::unavailable("stopped while the command was running"));
        }
        // A failure to write is reported when the intake is finished.
        if end.is_success() || lock(intake).is_broken() {
            return Ok(());
        }
        Err(Outcome::new(end.shell_code(), end.failure(self.list.limits.timeout)).into())
    }
}

/// The runs of one fetcher, each shown by an observer of its own. If they are shared, the list may be fetched by hand
/// between two of them.
pub fn runs(
    fetcher: Fetcher,
    observer: impl Fn() -> Box<dyn Observer> + 'static,
    is_shared: bool,
) -> StartRun {
    // Locked by the one run that is on.
    let fetcher = Rc::new(tokio::sync::Mutex::new(fetcher));
    Rc::new(move |changed, stop| {
        let (fetcher, observer) = (Rc::clone(&fetcher), observer());
        Box::pin(async move {
            let mut fetcher = fetcher.lock().await;
            let fetched = fetcher.run(changed, observer, stop).await;
            if is_shared {
                fetcher.claim = None;
            }
            match fetched {
                Ok(Delivered { file, tally: Tally { accepted, faulty } }) => {
                    Outcome::new(0, format!("{accepted} lines, {faulty} faulty: {file}"))
                }
                Err(error) => error.outcome,
            }
        })
    })
}

/// Has the intake take what the command writes; `broken` hears when it cannot.
fn output(intake: &Arc<Mutex<Intake>>, broken: &Arc<Notify>) -> Output {
    let (intake, broken) = (Arc::clone(intake), Arc::clone(broken));
    Output::Sink(Box::new(move |stream, piece: &[u8]| {
        let mut intake = lock(&intake);
        match stream {
            Stream::Err => intake.complaint(piece),
            Stream::Out if intake.take(piece) => {}
            Stream::Out => broken.notify_one(),
        }
    }))
}

/// Runs code that may wait for a lock or a disk on another thread than the runtime's.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(FetchError::unavailable("the delivery broke off")))
}

/// Both holders are on one thread; a panic of one leaves nothing that the other would trust.
fn lock(intake: &Mutex<Intake>) -> MutexGuard<'_, Intake> {
    intake.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a whole list in its place, if it is long enough.
fn deliver(part: Part, tally: Tally, list: &List) -> Result<Delivered, FetchError> {
    let Tally { accepted, faulty } = tally;
    let (min_lines, min_share) = (list.min_lines, list.min_share);
    let wrote = format!("the command wrote {accepted} good lines");
    let too_few = if accepted == 0 {
        Some(format!("the command wrote no good line ({faulty} faulty ones)"))
    } else if accepted < min_lines {
        Some(format!("{wrote}, and {min_lines} are asked for (min-lines)"))
    } else {
        // Numbers of lines are far below 2^53: nothing is lost.
        let last = part.claim.last_complete()?;
        let longer = last.filter(|(_, last)| (accepted as f64) < min_share * *last as f64);
        longer.map(|(file, last)| format!(
            "{wrote}, less than the share {min_share} (min-share) of the {last} in {file}; if so few are right, fetch once by hand with --min-share 0"
        ))
    };
    match too_few {
        Some(why) => Err(FetchError::unavailable(why)),
        None => Ok(Delivered { file: part.publish()?, tally }),
    }
}
