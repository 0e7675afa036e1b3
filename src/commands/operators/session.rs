//! An operator's connection to the daemon, in protocol 2.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Answer;
use crate::client::{self, Client, Deadline};
use crate::commands::text::shown;
use crate::exit::{ExitCode, Failure};

/// A connection that was greeted.
pub struct Session {
    socket: PathBuf,
    client: Client,
}

impl Session {
    /// Connects, says who asks, and what; `timeout` is for the message. Returns the answer as well.
    pub fn begin(
        socket: &Path,
        name: &str,
        request: &str,
        timeout: Duration,
        deadline: Deadline,
    ) -> Result<(Self, Answer), Failure> {
        let failed = |error: io::Error| client::no_answer(socket, timeout, &error);
        let client = Client::connect(socket, deadline).map_err(failed)?;
        let mut session = Self { socket: socket.to_owned(), client };
        let lines = format!("HELLO 2 shiftboss-{name}\n{request}\n");
        session.client.send(lines.as_bytes(), deadline).map_err(failed)?;
        let Some(greeting) = session.client.line(deadline).map_err(failed)? else {
            return Err(session.silent(name));
        };
        if !greeting.starts_with("HELLO 2 ") {
            return Err(session.refused(&greeting));
        }
        let Some(line) = session.client.line(deadline).map_err(failed)? else {
            let why = "the daemon closed the connection without an answer";
            return Err(failed(io::Error::new(ErrorKind::UnexpectedEof, why)));
        };
        let answer = session.answer(line)?;
        Ok((session, answer))
    }

    /// Asks for something more; the answer is to be read.
    pub(super) fn ask(&mut self, request: &str, deadline: Deadline) -> io::Result<()> {
        self.client.send(format!("{request}\n").as_bytes(), deadline)
    }

    /// The next line; `None`: the daemon has closed.
    pub(super) fn line(&mut self, deadline: Deadline) -> io::Result<Option<String>> {
        self.client.line(deadline)
    }

    fn answer(&self, line: String) -> Result<Answer, Failure> {
        match serde_json::from_str(&line) {
            Ok(object) => Ok(Answer { line, object }),
            Err(_) => Err(self.refused(&line)),
        }
    }

    /// A close in silence: what a daemon does that does not know the greeting.
    fn silent(&self, name: &str) -> Failure {
        let text = format!(
            "the daemon on {} closed the connection without a word: it runs with --classic, \
             where there is no `{name}` (`shiftboss status` shows it), or it is stopping",
            self.socket.display()
        );
        Failure::new(ExitCode::Unavailable, text)
    }

    /// `ERROR code text`, or nothing that we know.
    fn refused(&self, line: &str) -> Failure {
        let words = line.strip_prefix("ERROR ").unwrap_or_default();
        let (code, text) = words.split_once(' ').unwrap_or((words, ""));
        let (socket, text) = (self.socket.display(), shown(text));
        let (exit, message) = match code {
            "denied" => (
                ExitCode::Denied,
                format!("the daemon on {socket} refused: {text}; run this as its user, or as root"),
            ),
            "unknown" => (ExitCode::BadData, text),
            "busy" => (
                ExitCode::Unavailable,
                format!("the daemon cannot do it now: {text}; say it again"),
            ),
            "unsupported" => (
                ExitCode::Configuration,
                format!("the daemon on {socket} is older than this command: {text}"),
            ),
            "version" => (
                ExitCode::Configuration,
                format!(
                    "the daemon on {socket} speaks another version: {text}; use its own shiftboss"
                ),
            ),
            _ => (
                ExitCode::Unavailable,
                format!(
                    "{socket} answered {:?}: is it the socket of `shiftboss serve`?",
                    shown(line)
                ),
            ),
        };
        Failure::new(exit, message)
    }
}
