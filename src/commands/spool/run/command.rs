//! The command that is run for an entry: its arguments, its environment, its output.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use super::resolve::OutcomePolicy;
use crate::child::{Fault, Guardian, Kept, Order, Outputs, Running, Template, look_for};
use crate::cli::SpoolRunArguments;
use crate::exit::{ExitCode, Failure};
use shiftboss_spool::{Guard, Spool};

/// Longer metadata is in no environment: the kernel takes 128 KiB a variable, name and all.
const META_BYTES_MAX: usize = 120 * 1024;

fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Where output goes: into files, or to standard output.
fn outputs(
    logs: Option<PathBuf>,
    keep: Duration,
) -> Result<(Outputs, Option<JoinHandle<()>>), Failure> {
    let Some(logs) = logs else {
        return Outputs::new(None, print).map_err(|error| {
            Failure::new(ExitCode::StoreIo, format!("cannot start a thread: {error}"))
        });
    };
    let shown = logs.display().to_string();
    let absolute = std::path::absolute(logs);
    absolute.and_then(|logs| Outputs::new(Some((logs, keep)), print)).map_err(|error| {
        Failure::new(ExitCode::CannotCreate, format!("cannot make the directory {shown}: {error}"))
    })
}

/// What is run, and what becomes of entries.
pub struct CommandRunner {
    guardian: Guardian,
    template: Template,
    pub outputs: Outputs,
    dir: OsString,
    time_limit: Option<Duration>,
    grace: Duration,
    pub policy: OutcomePolicy,
}

impl CommandRunner {
    /// One for what was typed, and the thread that prints, if one does, which ends with it.
    pub fn new(
        spool: &Spool,
        mut typed: SpoolRunArguments,
        policy: OutcomePolicy,
    ) -> Result<(Self, Option<JoinHandle<()>>), Failure> {
        let template = typed.template()?;
        look_for(&template.program)
            .map_err(|error| Failure::new(ExitCode::Configuration, error.to_string()))?;
        let (outputs, thread) = outputs(typed.log_dir, typed.keep.into())?;
        let runner = Self {
            guardian: Guardian::new(),
            template,
            outputs,
            dir: spool.path().into(),
            time_limit: typed.timeout,
            grace: typed.grace.into(),
            policy,
        };
        Ok((runner, thread))
    }

    /// Starts the command for an entry. In a runtime, on a thread that stays.
    pub fn start(&self, guard: &Guard) -> Result<(Running, Kept), Fault> {
        let data = guard.data().path();
        let places = [
            ("{name}", guard.name().as_bytes()),
            ("{meta}", guard.metadata()),
            ("{data}", data.as_os_str().as_bytes()),
        ];
        let arguments = self.template.arguments_with(&places);
        let (program, attempt) = (&self.template.program, guard.attempt().into());
        let key = self.key(guard);
        let (output, mut kept) = self.outputs.open(&key, Some(attempt), program, &arguments)?;
        let order = Order {
            program: program.clone(),
            arguments,
            environment: self.environment(guard, data.into()),
            directory: None,
            input: None,
            output,
            time_limit: self.time_limit,
            grace: self.grace,
        };
        match self.guardian.start(order) {
            Ok(running) => Ok((running, kept)),
            Err(error) => {
                kept.close(&error.to_string());
                Err(error.into())
            }
        }
    }

    /// What stands in front of printed lines is a name that can be typed; a file's name is made of the
    /// bytes.
    fn key(&self, guard: &Guard) -> Vec<u8> {
        match self.outputs {
            Outputs::Print(_) => guard.name().to_string().into_bytes(),
            Outputs::Log(_) => guard.name().as_bytes().to_vec(),
        }
    }

    fn environment(&self, guard: &Guard, data: OsString) -> Vec<(OsString, OsString)> {
        let mut variables = vec![
            ("DIR", self.dir.clone()),
            ("QUEUE", guard.queue().as_os_str().into()),
            ("NAME", guard.name().as_os_str().into()),
            ("META_FILE", guard.metadata_path().into()),
            ("DATA", data),
            ("ATTEMPT", guard.attempt().to_string().into()),
        ];
        let metadata = guard.metadata();
        if metadata.len() <= META_BYTES_MAX && !metadata.contains(&0) {
            variables.push(("META", OsStr::from_bytes(metadata).into()));
        }
        let named = |(name, value)| (format!("SHIFTBOSS_SPOOL_{name}").into(), value);
        variables.into_iter().map(named).collect()
    }
}
