//! Starts a job's command, and has its output go where it is wanted. Knows nothing of the daemon.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::wire::Job;
use crate::child::{End, Fault, Guardian, Kept, Order, Outputs, Running, Template};

/// What commands are run, and how.
pub struct Workshop {
    /// Starts them.
    pub guardian: Guardian,
    /// What is run.
    pub template: Template,
    /// The worker's name.
    pub name: String,
    /// How long a command may run.
    pub time_limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
    /// Where output goes.
    pub outputs: Outputs,
}

impl Workshop {
    /// Starts the command of `job`. In a runtime, on a thread that stays.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn start(&self, job: &Job) -> Result<Execution, Fault> {
        let places = [("{key}", &job.key[..]), ("{payload}", &job.payload)];
        let arguments = self.template.arguments_with(&places);
        let program = &self.template.program;
        let (output, mut kept) = self.outputs.open(&job.key, job.attempt, program, &arguments)?;
        let order = Order {
            program: program.clone(),
            arguments,
            environment: self.environment(job),
            directory: None,
            output,
            time_limit: self.time_limit,
            grace: self.grace,
        };
        match self.guardian.start(order) {
            Ok(running) => {
                let (started, log) = (Instant::now(), kept.path());
                Ok(Execution { running, kept, started, log })
            }
            Err(error) => {
                kept.close(&error.to_string());
                Err(error.into())
            }
        }
    }

    fn environment(&self, job: &Job) -> Vec<(OsString, OsString)> {
        let attempt = job.attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
        let variables = [
            ("SHIFTBOSS_KEY", OsString::from_vec(job.key.clone())),
            ("SHIFTBOSS_PAYLOAD", OsString::from_vec(job.payload.clone())),
            ("SHIFTBOSS_ATTEMPT", attempt.into()),
            ("SHIFTBOSS_WORKER", self.name.clone().into()),
        ];
        variables.map(|(name, value)| (name.into(), value)).into()
    }
}

/// A command that runs. Dropped, it is killed.
pub struct Execution {
    running: Running,
    kept: Kept,
    started: Instant,
    log: Option<PathBuf>,
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
