//! Starts a job's command, and has its output go where it is wanted. Knows nothing of the daemon.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::payload::{self, NamedPayload};
use super::wire::Job;
use crate::child::{End, Fault, Guardian, Kept, Order, Outputs, Running, StartError, Template};

/// Stands for the path of a file with the payload.
const PAYLOAD_FILE: &str = "{payload_file}";
/// A longer payload is in no environment: the kernel takes 128 KiB a variable, name and all.
const PAYLOAD_BYTES_MAX: usize = 120 * 1024;

/// What commands are run, and how.
pub struct Workshop {
    pub guardian: Guardian,
    pub template: Template,
    /// The payload is the command's standard input.
    pub stdin: bool,
    pub name: String,
    /// How long a command may run.
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    pub outputs: Outputs,
}

impl Workshop {
    /// Removes the payloads of workers that were killed, where this one makes its own.
    pub fn clean(&self) {
        if self.template.has_place(PAYLOAD_FILE) {
            payload::sweep();
        }
    }

    /// Starts the command of `job`. In a runtime, on a thread that stays.
    pub fn start(&self, job: &Job) -> Result<Execution, Fault> {
        let payload = self.payload(job).map_err(|source| {
            Fault::System(StartError::System { doing: "write a payload to a file", source })
        })?;
        let path = payload.file.as_ref().map(|file| file.path().as_os_str().as_bytes());
        let places = [
            ("{key}", &job.key[..]),
            ("{payload}", &job.payload),
            (PAYLOAD_FILE, path.unwrap_or_default()),
        ];
        let arguments = self.template.arguments_with(&places);
        let program = &self.template.program;
        let (output, mut kept) = self.outputs.open(&job.key, job.number(), program, &arguments)?;
        let order = Order {
            program: program.clone(),
            arguments,
            environment: self.environment(job, payload.is_elsewhere()),
            directory: None,
            input: payload.input,
            output,
            time_limit: self.time_limit,
            grace: self.grace,
        };
        match self.guardian.start(order) {
            Ok(running) => {
                let (started, log) = (Instant::now(), kept.path());
                Ok(Execution { running, kept, started, log, _payload: payload.file })
            }
            Err(error) => {
                kept.close(&error.to_string());
                Err(error.into())
            }
        }
    }

    /// The payload where the command finds it beside its arguments, as far as it is to.
    fn payload(&self, job: &Job) -> io::Result<Payload> {
        let mut payload = Payload { file: None, input: None };
        if self.template.has_place(PAYLOAD_FILE) {
            payload.file = Some(NamedPayload::new(&job.payload)?);
        }
        if self.stdin {
            payload.input = Some(payload::unnamed(&job.payload)?);
        }
        Ok(payload)
    }

    /// A payload that is too long for the environment is left out of it; one with a zero byte if the command
    /// has it otherwise.
    fn environment(&self, job: &Job, elsewhere: bool) -> Vec<(OsString, OsString)> {
        let attempt = job.number().map(|attempt| attempt.to_string()).unwrap_or_default();
        let mut variables = vec![
            ("SHIFTBOSS_KEY", OsString::from_vec(job.key.clone())),
            ("SHIFTBOSS_ATTEMPT", attempt.into()),
            ("SHIFTBOSS_WORKER", self.name.clone().into()),
        ];
        let is_short = job.payload.len() <= PAYLOAD_BYTES_MAX;
        if is_short && !(elsewhere && job.payload.contains(&0)) {
            variables.push(("SHIFTBOSS_PAYLOAD", OsString::from_vec(job.payload.clone())));
        }
        variables.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }
}

struct Payload {
    file: Option<NamedPayload>,
    /// The standard input, without a name.
    input: Option<File>,
}

impl Payload {
    fn is_elsewhere(&self) -> bool {
        self.file.is_some() || self.input.is_some()
    }
}

/// A command that runs. Dropped, it is killed.
pub struct Execution {
    running: Running,
    kept: Kept,
    started: Instant,
    log: Option<PathBuf>,
    _payload: Option<NamedPayload>,
}

impl Execution {
    /// Waits for the end of the command and of its output. May be cancelled and called again.
    pub async fn wait(&mut self) -> End {
        let end = self.running.wait().await;
        self.kept.end(end).await;
        end
    }

    /// How long ago it was started.
    pub fn took(&self) -> Duration {
        self.started.elapsed()
    }

    /// Where its output is, unless it is printed.
    pub fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Kills the command and waits until it is gone. Nobody waits for those who read its output.
    pub async fn kill(&mut self) {
        self.running.kill();
        self.running.wait().await;
        self.kept.close("killed by the worker");
    }
}
