//! `shiftboss work`: runs [`crate::worker`] until it is done or signals end it. Here are signals and
//! exit codes; what a worker does is there.

use std::cell::Cell;
use std::io;

use crate::child;
use crate::exit::{ExitCode, Failure};
use crate::signals::{SIGNAL_BASE, Signals};
use crate::socket::{PATH_MAX_BYTES, SocketError};
use crate::worker::{self, Outcome, Settings};

pub fn run(settings: Settings) -> Result<(), Failure> {
    let length = settings.socket.as_os_str().len();
    if length > PATH_MAX_BYTES {
        let error = SocketError::TooLong { path: settings.socket, length };
        return Err(Failure::new(ExitCode::Usage, error.to_string()));
    }
    child::look_for(&settings.command.program).map_err(|error| {
        let message = format!("no job was taken: {error}");
        Failure::new(ExitCode::Configuration, message)
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| cannot("start the runtime", &error))?;
    let last_signal = Cell::new(0);
    let socket = settings.socket.display().to_string();
    let logs = settings.logs.as_ref().map(|(directory, _)| directory.display().to_string());
    let ended = runtime.block_on(async {
        let mut signals = Signals::new().map_err(|error| cannot("listen for signals", &error))?;
        let next = async || last_signal.set(signals.next().await);
        worker::run(settings, next).await.map_err(|error| match logs {
            Some(logs) => cannot(&format!("make the directory {logs}"), &error),
            None => cannot("start a thread", &error),
        })
    });
    match ended? {
        Outcome::Done => Ok(()),
        Outcome::Failed(why) => {
            Err(Failure::new(ExitCode::Found, format!("not all jobs were done well: {why}")))
        }
        Outcome::NoRoom(why) => {
            let hint = "is there room for it, and may this user write to TMPDIR?";
            let message = format!("no job can be started: {why}; {hint}");
            Err(Failure::new(ExitCode::CannotCreate, message))
        }
        // What still waits for a reader of standard output is not waited for.
        Outcome::Killed => std::process::exit(SIGNAL_BASE + last_signal.get()),
        Outcome::Unanswered(why) => {
            let hint = "is `shiftboss serve` running with this socket, and may this user use it?";
            let message = format!("no daemon answered on {socket} for 30 s: {why}; {hint}");
            Err(Failure::new(ExitCode::Unavailable, message))
        }
        Outcome::Broken => {
            let message = "a bug in shiftboss ended a job's task; please report the message above";
            Err(Failure::new(ExitCode::Internal, message))
        }
    }
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    Failure::new(ExitCode::CannotCreate, format!("cannot {what}: {error}"))
}
