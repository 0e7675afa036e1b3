//! The command that is run for an entry: its arguments, its environment, its output.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::thread::JoinHandle;
use std::time::Duration;

use super::settle::Settling;
use crate::child::{Fault, Guardian, Order, Printer, Printing, Running, Template, look_for};
use crate::cli::SpoolRunArguments;
use crate::exit::{ExitCode, Failure};
use crate::spool::{Guard, Spool};

/// Longer metadata is in no environment: the kernel takes 128 KiB a variable, name and all.
const META_BYTES_MAX: usize = 120 * 1024;

/// Standard output.
fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// What is run, and what becomes of entries.
pub struct Workshop {
    guardian: Guardian,
    template: Template,
    printer: Printer,
    /// The spool's directory.
    dir: OsString,
    time_limit: Option<Duration>,
    grace: Duration,
    pub settling: Settling,
}

impl Workshop {
    /// One for what was typed, and the thread that prints, which ends with it.
    ///
    /// # Errors
    /// When there is no command, its program is missing, or there is no room for a thread.
    pub fn new(
        spool: &Spool,
        typed: SpoolRunArguments,
        settling: Settling,
    ) -> Result<(Self, JoinHandle<()>), Failure> {
        let mut words = typed.command.into_iter();
        let program =
            words.next().ok_or_else(|| Failure::new(ExitCode::Usage, "there is no COMMAND"))?;
        look_for(&program)
            .map_err(|error| Failure::new(ExitCode::Configuration, error.to_string()))?;
        let (printer, thread) = Printer::start(print).map_err(|error| {
            Failure::new(ExitCode::StoreIo, format!("cannot start a thread: {error}"))
        })?;
        let workshop = Self {
            guardian: Guardian::new(),
            template: Template { program, arguments: words.collect() },
            printer,
            dir: spool.path().into(),
            time_limit: typed.timeout,
            grace: typed.grace.into(),
            settling,
        };
        Ok((workshop, thread))
    }

    /// Starts the command for an entry. In a runtime, on a thread that stays.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn start(&self, guard: &Guard) -> Result<(Running, Printing), Fault> {
        let data = guard.data().path();
        let places = [
            ("{name}", guard.name().as_bytes()),
            ("{meta}", guard.metadata()),
            ("{data}", data.as_os_str().as_bytes()),
        ];
        let arguments = self.template.arguments_with(&places);
        let shown = guard.name().to_string();
        let (output, printing) = self.printer.print(shown.as_bytes()).map_err(Fault::no_pipe)?;
        let order = Order {
            program: self.template.program.clone(),
            arguments,
            environment: self.environment(guard, data.into()),
            directory: None,
            output,
            time_limit: self.time_limit,
            grace: self.grace,
        };
        Ok((self.guardian.start(order)?, printing))
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
