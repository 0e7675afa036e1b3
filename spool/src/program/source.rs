//! The source of `shiftspool run`: takes entries of a queue, and resolves them by how their commands ended.
//!
//! The spool blocks, so its calls are made on other threads than the runtime's; only one at a time waits for entries.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use shiftboss_runner::Source;
use shiftboss_runner::child::{StartError, Template};
use shiftboss_runner::command::{JobCommand, VARIABLE_BYTES_MAX};
use shiftboss_runner::payload::Payload;
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::{error, warn};

use crate::{EntryName, Guard, QueueName, Reader, SpoolError, Stop};

pub const PLACES: [&str; 5] = ["{name}", "{meta}", "{meta_file}", "{data}", "{id}"];
/// The first pause after a command that could not do its work now; twice as long after each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// After this many of them in a row, `once` gives up.
const PAUSES_MAX: u32 = 3;

#[derive(Debug, Error)]
pub enum SpoolRunError {
    #[error(transparent)]
    Spool(SpoolError),
    #[error(transparent)]
    NotStarted(StartError),
    #[error("the command ended with exit code {0}, which means later (--defer)")]
    Deferred(u8),
}

#[derive(Debug)]
pub struct SpoolSettings {
    pub directory: OsString,
    pub once: bool,
    /// Output goes to files.
    pub is_logged: bool,
    pub attempts: u32,
    /// The queue for entries that failed for good.
    pub failed: QueueName,
    pub rest: Duration,
    pub defer: Vec<u8>,
}

/// The entries of a queue; clones share them.
#[derive(Clone)]
pub struct SpoolSource {
    reader: Arc<Mutex<Reader>>,
    shared: Arc<Shared>,
    /// How many commands of this slot could not do their work, in a row.
    pauses: u32,
}

struct Shared {
    settings: SpoolSettings,
    /// Ends the waiting for entries: no more are taken.
    stop: Stop,
    failures: StdMutex<Failures>,
}

/// What has failed; only tracked with `once`.
#[derive(Default)]
struct Failures {
    /// Entries that failed for good.
    for_good: usize,
    /// Entries that rest before they are tried again.
    resting: BTreeSet<EntryName>,
}

impl SpoolSource {
    pub fn new(reader: Reader, stop: Stop, settings: SpoolSettings) -> Self {
        let shared = Shared { settings, stop, failures: StdMutex::default() };
        Self { reader: Arc::new(Mutex::new(reader)), shared: Arc::new(shared), pauses: 0 }
    }

    pub fn stop(&self) {
        self.shared.stop.stop();
    }

    /// Entries whose last attempt failed; they are only counted with `once`.
    pub fn failed(&self) -> usize {
        let failures = self.shared.failures();
        failures.for_good + failures.resting.len()
    }

    /// Stops taking entries in all slots, after a failure that others would meet, too.
    fn give_up(&self, error: SpoolRunError) -> SpoolRunError {
        self.stop();
        error
    }

    /// Gives an entry back uncounted, and waits before the next one is taken.
    async fn put_off(&mut self, guard: Guard, why: SpoolRunError) -> Result<(), SpoolRunError> {
        let name = guard.name().clone();
        self.release(guard).await?;
        let pause = PAUSE_FIRST.saturating_mul(1 << self.pauses.min(6)).min(PAUSE_LONGEST);
        self.pauses += 1;
        if self.shared.settings.once && self.pauses >= PAUSES_MAX {
            return Err(self.give_up(why));
        }
        let shown = humantime::format_duration(pause);
        warn!(%name, error = %why, pause = %shown, "A command could not do its work now; the entry is given back.");
        self.blocking(move |shared| Ok(_ = shared.stop.wait(pause))).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Shared) -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, SpoolRunError> {
        let shared = Arc::clone(&self.shared);
        let called = spawn_blocking(move || call(&shared)).await;
        let called = called.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        called.map_err(|error| self.give_up(SpoolRunError::Spool(error)))
    }
}

impl Source for SpoolSource {
    type Job = Guard;
    type Error = SpoolRunError;

    async fn take(&mut self, ended: Option<(Guard, u8)>) -> Result<Option<Guard>, SpoolRunError> {
        match ended {
            Some((guard, code)) if self.shared.settings.defer.contains(&code) => {
                self.put_off(guard, SpoolRunError::Deferred(code)).await?;
            }
            Some((guard, code)) => {
                self.pauses = 0;
                self.blocking(move |shared| shared.resolve(guard, Some(code))).await?;
            }
            None => {}
        }
        let mut reader = Arc::clone(&self.reader).lock_owned().await;
        self.blocking(move |shared| shared.next(&mut reader)).await
    }

    fn command(&self, guard: &Guard, template: &Template) -> Result<JobCommand, StartError> {
        let name = guard.name();
        let id = guard.id().map_err(|error| {
            StartError::system("tell an entry from others")(io::Error::other(error))
        })?;
        let (data, file) = (guard.data().path(), guard.metadata_path());
        let values = [
            name.as_bytes(),
            guard.metadata(),
            file.as_os_str().as_bytes(),
            data.as_os_str().as_bytes(),
            id.as_bytes(),
        ];
        let places: Vec<_> = PLACES.into_iter().zip(values).collect();
        // The prefix of printed lines is the name in typable form; a file's name is made from the bytes.
        let is_logged = self.shared.settings.is_logged;
        let key = if is_logged { name.as_bytes().to_vec() } else { name.to_string().into_bytes() };
        Ok(JobCommand {
            key,
            shown: name.to_string(),
            attempt: Some(guard.attempt().into()),
            arguments: template.arguments_with(&places),
            environment: environment(&self.shared.settings.directory, guard, data.into(), id),
            payload: Payload::default(),
        })
    }

    async fn not_started(
        &mut self,
        guard: Guard,
        error: StartError,
    ) -> Result<Option<(Guard, u8)>, SpoolRunError> {
        if error.is_of_job() {
            let name = guard.name();
            warn!(%name, %error, "A command was not started: this entry cannot be put on its command line.");
            return Ok(Some((guard, error.shell_code())));
        }
        self.put_off(guard, SpoolRunError::NotStarted(error)).await.map(|()| None)
    }

    async fn release(&mut self, guard: Guard) -> Result<(), SpoolRunError> {
        self.blocking(move |shared| shared.resolve(guard, None)).await
    }
}

fn environment(
    directory: &OsStr,
    guard: &Guard,
    data: OsString,
    id: String,
) -> Vec<(OsString, OsString)> {
    let mut variables = vec![
        ("DIR", directory.into()),
        ("QUEUE", guard.queue().as_os_str().into()),
        ("NAME", guard.name().as_os_str().into()),
        ("META_FILE", guard.metadata_path().into()),
        ("DATA", data),
        ("ID", id.into()),
        ("ATTEMPT", guard.attempt().to_string().into()),
    ];
    let metadata = guard.metadata();
    if metadata.len() <= VARIABLE_BYTES_MAX && !metadata.contains(&0) {
        variables.push(("META", OsStr::from_bytes(metadata).into()));
    }
    let named = |(name, value)| (format!("SHIFTSPOOL_{name}").into(), value);
    variables.into_iter().map(named).collect()
}

impl Shared {
    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next entry that may be given to a command; `None`: there is nothing to take, or it is time to stop.
    fn next(&self, reader: &mut Reader) -> Result<Option<Guard>, SpoolError> {
        let limit = self.settings.once.then_some(Duration::ZERO);
        while let Some(guard) = reader.dequeue(&self.stop, limit)? {
            let Err(error) = guard.data().require_own() else {
                return Ok(Some(guard));
            };
            error!(name = %guard.name(), %error, to = %self.settings.failed, "An entry's data is no file of its own; it was moved.");
            match guard.reject(&error.to_string()) {
                Ok(()) | Err(SpoolError::Lost { .. }) => self.failures().for_good += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Resolves an entry by its exit code; `None`: it was not begun, or we broke it off. A lost claim is resolved by
    /// others, and is not an error.
    fn resolve(&self, guard: Guard, code: Option<u8>) -> Result<(), SpoolError> {
        let SpoolSettings { once, attempts, failed, rest, .. } = &self.settings;
        let (name, attempt) = (guard.name().clone(), guard.attempt());
        if code.is_some() {
            self.failures().resting.remove(&name);
        }
        let resolved = match code {
            Some(0) => guard.complete(),
            None => guard.release(),
            Some(_) if attempt < *attempts => {
                if *once {
                    self.failures().resting.insert(name.clone());
                }
                guard.retry_after(*rest)
            }
            Some(code) => {
                error!(%name, attempt, to = %failed, "An entry failed for good.");
                self.failures().for_good += 1;
                guard.reject(&format!(
                    "attempt {attempt} failed with exit code {code}, and was the last one"
                ))
            }
        };
        match resolved {
            Err(error @ SpoolError::Lost { .. }) => {
                warn!(%name, %error, "An entry was not resolved.");
                Ok(())
            }
            resolved => resolved,
        }
    }
}
