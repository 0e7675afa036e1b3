//! Starts a job's command, and has its output go where it is wanted. Knows nothing of the daemon.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::warn;

use super::job_log::{JobLog, LogDirectory};
use super::wire::Job;
use crate::child::{Fault, Guardian, Order, Output, Printer, Printing, Running, Template};

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

/// Where the output of commands goes.
pub enum Outputs {
    /// To a file for each key and day.
    Log(Arc<LogDirectory>),
    /// To standard output, each line with its key.
    Print(Printer),
}

impl Workshop {
    /// Starts the command of `job`. In a runtime, on a thread that stays.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn start(&self, job: &Job) -> Result<Execution, Fault> {
        let places = [("{key}", &job.key[..]), ("{payload}", &job.payload)];
        let arguments = self.template.arguments_with(&places);
        let (output, kept) = match &self.outputs {
            Outputs::Print(printer) => {
                let (output, printing) = printer.print(&job.key).map_err(Fault::no_pipe)?;
                (output, Kept::Printed(printing))
            }
            Outputs::Log(directory) => {
                let command = std::iter::once(&self.template.program).chain(&arguments);
                match directory.open(job, command, SystemTime::now()) {
                    Ok((output, log)) => (output, Kept::Logged(log)),
                    Err(error) => {
                        warn!(key = job.shown_key(), %error, "A job runs without a log.");
                        (Output::Sink(Box::new(|_, _: &[u8]| {})), Kept::Nowhere)
                    }
                }
            }
        };
        let order = Order {
            program: self.template.program.clone(),
            arguments,
            environment: self.environment(job),
            directory: None,
            output,
            time_limit: self.time_limit,
            grace: self.grace,
        };
        match self.guardian.start(order) {
            Ok(running) => Ok(Execution { running, kept: Some(kept) }),
            Err(error) => {
                if let Kept::Logged(log) = kept {
                    log.end(&error.to_string(), SystemTime::now());
                }
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
    /// None once it was taken care of.
    kept: Option<Kept>,
}

/// What is to be done about its output at the end.
enum Kept {
    Printed(Printing),
    Logged(JobLog),
    Nowhere,
}

impl Execution {
    /// Waits for the end of the command and of its output; returns the exit code that a shell would
    /// report. May be cancelled and called again.
    pub async fn wait(&mut self) -> u8 {
        let end = self.running.wait().await;
        if let Some(Kept::Printed(printing)) = &mut self.kept {
            printing.end().await;
        }
        self.close(&ending(end));
        end.shell_code()
    }

    /// Kills the command and waits until it is gone. Nobody waits for those who read its output.
    pub async fn kill(&mut self) {
        self.running.kill();
        self.running.wait().await;
        self.close("killed by the worker");
    }

    fn close(&mut self, ending: &str) {
        if let Some(Kept::Logged(log)) = self.kept.take() {
            log.end(ending, SystemTime::now());
        }
    }
}

fn ending(end: crate::child::End) -> String {
    use crate::child::End;
    match end {
        End::Code(code) => format!("exit code {code}"),
        End::Signal(number) => format!("signal {number}, exit code {}", end.shell_code()),
        End::TimedOut => format!("its time was over, exit code {}", end.shell_code()),
    }
}
