//! The source of `spool run`: takes entries of a queue, and resolves them by how their commands ended.
//!
//! The spool blocks, so its calls are made beside the runtime's thread; one at a time waits for entries.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use shiftboss_spool::{EntryName, Guard, QueueName, Reader, SpoolError, Stop as SpoolStop, Taken};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::{error, warn};

use super::command::{JobCommand, Payload, VARIABLE_BYTES_MAX};
use super::{NotStarted, Source};
use crate::child::{Blame, StartError, Template};

/// Before the next command, when the system had no room for one.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Error)]
pub enum SpoolRunError {
    #[error(transparent)]
    Spool(SpoolError),
    #[error(transparent)]
    Program(StartError),
}

/// What is done with entries.
#[derive(Debug)]
pub struct SpoolSettings {
    pub directory: OsString,
    /// Exit when nothing can be taken.
    pub once: bool,
    /// Output goes to files.
    pub is_logged: bool,
    /// How often an entry is tried.
    pub attempts: u32,
    /// Where it goes then.
    pub failed: QueueName,
    /// How long it rests between two attempts.
    pub rest: Duration,
}

/// The entries of a queue; clones share them.
#[derive(Clone)]
pub struct SpoolSource(Arc<Shared>);

struct Shared {
    settings: SpoolSettings,
    reader: Arc<Mutex<Reader>>,
    /// Ends the waiting for entries.
    waiting: SpoolStop,
    is_stopping: AtomicBool,
    /// With `once`: the entries whose last attempt failed.
    failed: StdMutex<BTreeSet<EntryName>>,
}

impl SpoolSource {
    pub fn new(reader: Reader, waiting: SpoolStop, settings: SpoolSettings) -> Self {
        let reader = Arc::new(Mutex::new(reader));
        let (is_stopping, failed) = (AtomicBool::new(false), StdMutex::default());
        Self(Arc::new(Shared { settings, reader, waiting, is_stopping, failed }))
    }

    /// Takes no more.
    pub fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
        self.0.waiting.stop();
    }

    /// Entries whose last attempt failed; they are counted with `once` alone.
    pub fn failed(&self) -> usize {
        self.0.failed.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Nobody takes any more after a failure that others would meet, too.
    fn give_up(&self, error: SpoolRunError) -> SpoolRunError {
        self.stop();
        error
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, SpoolRunError> {
        let called = spawn_blocking(call).await;
        let called = called.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        called.map_err(|error| self.give_up(SpoolRunError::Spool(error)))
    }

    /// Resolves an entry by its exit code; `None`: it was not begun, or broken off by us.
    async fn resolve(&self, guard: Guard, code: Option<u8>) -> Result<(), SpoolRunError> {
        let shared = Arc::clone(&self.0);
        let name = guard.name().clone();
        self.blocking(move || shared.settings.resolve(guard, code)).await?;
        if let Some(code) = code {
            self.note(name, code != 0);
        }
        Ok(())
    }

    fn note(&self, name: EntryName, has_failed: bool) {
        let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match has_failed {
            true if self.0.settings.once => _ = failed.insert(name),
            true => {}
            false => _ = failed.remove(&name),
        }
    }

    /// The entry, unless its data is not its own: then no command is given its path.
    async fn refuse_planted(&self, guard: Guard) -> Result<Option<Guard>, SpoolRunError> {
        let (shared, name) = (Arc::clone(&self.0), guard.name().clone());
        let own = self.blocking(move || shared.settings.refuse_planted(guard)).await?;
        if own.is_none() {
            self.note(name, true);
        }
        Ok(own)
    }
}

impl Source for SpoolSource {
    type Job = Guard;
    type Error = SpoolRunError;

    async fn take(&mut self, ended: Option<(Guard, u8)>) -> Result<Option<Guard>, SpoolRunError> {
        if let Some((guard, code)) = ended {
            self.resolve(guard, Some(code)).await?;
        }
        loop {
            let mut reader = Arc::clone(&self.0.reader).lock_owned().await;
            if self.0.is_stopping.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let limit = self.0.settings.once.then_some(Duration::ZERO);
            let waiting = self.0.waiting.clone();
            match self.blocking(move || reader.dequeue(&waiting, limit)).await? {
                Taken::Entry(guard) => {
                    if let Some(guard) = self.refuse_planted(guard).await? {
                        return Ok(Some(guard));
                    }
                }
                Taken::Stopped => return Ok(None),
                Taken::TimedOut => {
                    self.stop();
                    return Ok(None);
                }
            }
        }
    }

    fn command(&self, guard: &Guard, template: &Template) -> Result<JobCommand, StartError> {
        let (data, name) = (guard.data().path(), guard.name());
        let places = [
            ("{name}", name.as_bytes()),
            ("{meta}", guard.metadata()),
            ("{data}", data.as_os_str().as_bytes()),
        ];
        // What stands in front of printed lines is a name that can be typed; a file's name is made of the bytes.
        let is_logged = self.0.settings.is_logged;
        let key = if is_logged { name.as_bytes().to_vec() } else { name.to_string().into_bytes() };
        Ok(JobCommand {
            key,
            shown: name.to_string(),
            attempt: Some(guard.attempt().into()),
            arguments: template.arguments_with(&places),
            environment: environment(&self.0.settings.directory, guard, data.into()),
            payload: Payload::default(),
        })
    }

    async fn not_started(
        &mut self,
        guard: Guard,
        error: StartError,
    ) -> Result<NotStarted<Guard>, SpoolRunError> {
        let name = guard.name().clone();
        match error.blame() {
            Blame::Job => {
                warn!(%name, %error, "A command was not started: this entry cannot be put on its command line.");
                return Ok(NotStarted::Ended(guard, error.shell_code()));
            }
            Blame::Program => {
                error!(%name, %error, "The command cannot be run, for any entry; this one is released.");
                let error = self.give_up(SpoolRunError::Program(error));
                self.release(guard).await?;
                return Err(error);
            }
            Blame::System => {
                warn!(%name, %error, "A command was not started; the entry is released.");
                tokio::time::sleep(PAUSE).await;
                self.release(guard).await?;
            }
        }
        Ok(NotStarted::Released)
    }

    async fn release(&mut self, guard: Guard) -> Result<(), SpoolRunError> {
        self.resolve(guard, None).await
    }
}

fn environment(directory: &OsStr, guard: &Guard, data: OsString) -> Vec<(OsString, OsString)> {
    let mut variables = vec![
        ("DIR", directory.into()),
        ("QUEUE", guard.queue().as_os_str().into()),
        ("NAME", guard.name().as_os_str().into()),
        ("META_FILE", guard.metadata_path().into()),
        ("DATA", data),
        ("ATTEMPT", guard.attempt().to_string().into()),
    ];
    let metadata = guard.metadata();
    if metadata.len() <= VARIABLE_BYTES_MAX && !metadata.contains(&0) {
        variables.push(("META", OsStr::from_bytes(metadata).into()));
    }
    let named = |(name, value)| (format!("SHIFTBOSS_SPOOL_{name}").into(), value);
    variables.into_iter().map(named).collect()
}

impl SpoolSettings {
    fn refuse_planted(&self, guard: Guard) -> Result<Option<Guard>, SpoolError> {
        let Err(error) = guard.data().require_own() else {
            return Ok(Some(guard));
        };
        error!(name = %guard.name(), %error, to = %self.failed, "An entry's data is no file of its own; it was moved.");
        match guard.reject(&error.to_string()) {
            Ok(()) | Err(SpoolError::Lost { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A lost claim is another's to resolve, and no error.
    fn resolve(&self, guard: Guard, code: Option<u8>) -> Result<(), SpoolError> {
        let (name, attempt) = (guard.name().clone(), guard.attempt());
        let resolved = match code {
            Some(0) => guard.complete(),
            None => guard.release(),
            Some(_) if attempt < self.attempts => guard.retry_after(self.rest),
            Some(code) => {
                error!(%name, attempt, to = %self.failed, "An entry failed for good.");
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
