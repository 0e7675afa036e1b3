//! Starts the commands of jobs, and has their output go where it is wanted. Knows nothing of where jobs come from.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::payload::{self, PAYLOAD_FILE, Payload};
use crate::child::{CommandSpec, End, Guardian, Kept, Outputs, Running, StartError, Template};
use crate::exit::{ExitCode, Failure};

/// A longer value is in no environment: the kernel takes 128 KiB a variable, name and all.
pub const VARIABLE_BYTES_MAX: usize = 120 * 1024;

#[derive(Debug, Clone)]
pub struct RunnerSettings {
    pub template: Template,
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    /// The logs' directory, and how long logs are kept; `None`: output is printed.
    pub logs: Option<(PathBuf, Duration)>,
}

pub struct CommandRunner {
    guardian: Guardian,
    pub settings: RunnerSettings,
    outputs: Outputs,
}

/// The thread that prints, if one does. It ends with the runner, when all is written.
pub type Writer = Option<JoinHandle<()>>;

/// Waits for its end. It waits for whoever reads.
pub fn join(writer: Writer) {
    // A panic there was reported by its hook.
    let _ = writer.map(JoinHandle::join);
}

/// What is run for one job.
pub struct JobCommand {
    /// Names its log, or stands in front of its lines.
    pub key: Vec<u8>,
    /// The key for people.
    pub shown: String,
    pub attempt: Option<i64>,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub payload: Payload,
}

impl CommandRunner {
    /// Without a directory for logs, `write` prints output, from a thread of its own.
    pub fn new(
        settings: RunnerSettings,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Result<(Self, Writer), Failure> {
        let what = settings.logs.as_ref().map_or("start a thread".to_owned(), |(directory, _)| {
            format!("make the directory {}", directory.display())
        });
        let (outputs, thread) = Outputs::new(settings.logs.clone(), write).map_err(|error| {
            Failure::new(ExitCode::CannotCreate, format!("cannot {what}: {error}"))
        })?;
        if settings.template.has_place(PAYLOAD_FILE) {
            payload::sweep();
        }
        Ok((Self { guardian: Guardian::default(), settings, outputs }, thread))
    }

    /// Starts a command. In a runtime, on a thread that stays.
    pub(super) fn start(&self, command: JobCommand) -> Result<Execution, StartError> {
        let JobCommand { key, shown, attempt, arguments, environment, mut payload } = command;
        let RunnerSettings { template, time_limit, grace, .. } = &self.settings;
        let program = &template.program;
        let (output, mut kept) = self.outputs.open(&key, attempt, program, &arguments)?;
        let spec = CommandSpec {
            arguments,
            environment,
            time_limit: *time_limit,
            grace: *grace,
            ..CommandSpec::new(program)
        };
        match self.guardian.start(&spec, payload.input.take(), output) {
            Ok(running) => {
                let started = Instant::now();
                Ok(Execution { running, kept, shown, attempt, started, _payload: payload })
            }
            Err(error) => {
                kept.close(&error.to_string());
                Err(error)
            }
        }
    }
}

/// A command that runs. Dropped, it is killed.
pub(super) struct Execution {
    running: Running,
    pub kept: Kept,
    pub shown: String,
    pub attempt: Option<i64>,
    pub started: Instant,
    /// Removed with this.
    _payload: Payload,
}

impl Execution {
    /// Waits for the end of the command and of its output. May be cancelled and called again.
    pub async fn wait(&mut self) -> End {
        let end = self.running.wait().await;
        self.kept.end(end).await;
        end
    }

    /// Kills the command and waits until it is gone; how it had ended, if it had. Nobody waits for those who read
    /// its output.
    pub async fn kill(&mut self) -> Option<End> {
        let end = self.running.end();
        self.running.kill();
        self.running.wait().await;
        match end {
            Some(end) => self.kept.close(&end.to_string()),
            None => self.kept.close("killed by the worker"),
        }
        end
    }
}
