//! An operator's connection to the daemon, in protocol 2.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shiftboss_protocol::wire::answers::Answer as Answers;
use shiftboss_protocol::wire::session::VERSION;

use super::Answer;
use shiftboss_protocol::client::{Connection, Deadline};

use crate::client;
use crate::commands::text::shown;
use crate::exit::{ExitCode, Failure};

/// A connection that was greeted.
pub struct Session {
    socket: PathBuf,
    client: Connection,
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
        let mut session = Self::greet(socket, name, &format!("{request}\n"), timeout, deadline)?;
        let answer = session.answer(timeout, deadline)?;
        Ok((session, answer))
    }

    /// Connects, and says who asks, with further `lines`, whose answers are to be read.
    pub fn greet(
        socket: &Path,
        name: &str,
        lines: &str,
        timeout: Duration,
        deadline: Deadline,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| client::no_answer(socket, timeout, &error);
        let client = Connection::connect(socket, deadline).map_err(failed)?;
        let mut session = Self { socket: socket.to_owned(), client };
        let lines = format!("HELLO {VERSION} shiftboss-{name}\n{lines}");
        session.client.send(lines.as_bytes(), deadline).map_err(failed)?;
        let Some(greeting) = session.client.line(deadline).map_err(failed)? else {
            return Err(session.silent(name));
        };
        if Answers::read(greeting.as_bytes()) != Some(Answers::Hello) {
            return Err(session.refused(&greeting));
        }
        Ok(session)
    }

    /// The answer to a request that was sent.
    pub fn answer(&mut self, timeout: Duration, deadline: Deadline) -> Result<Answer, Failure> {
        let failed = |error: io::Error| client::no_answer(&self.socket, timeout, &error);
        let Some(line) = self.client.line(deadline).map_err(failed)? else {
            let why = "the daemon closed the connection without an answer";
            return Err(failed(io::Error::new(ErrorKind::UnexpectedEof, why)));
        };
        match serde_json::from_str(&line) {
            Ok(object) => Ok(Answer { line, object }),
            Err(_) => Err(self.refused(&line)),
        }
    }

    /// Sends whole lines, whose answers are to be read.
    pub(super) fn send(
        &mut self,
        lines: &str,
        timeout: Duration,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let sent = self.client.send(lines.as_bytes(), deadline);
        sent.map_err(|error| client::no_answer(&self.socket, timeout, &error))
    }

    /// Asks for something more; the answer is to be read.
    pub(super) fn ask(&mut self, request: &str, deadline: Deadline) -> io::Result<()> {
        self.client.send(format!("{request}\n").as_bytes(), deadline)
    }

    /// The next line; `None`: the daemon has closed.
    pub(super) fn line(&mut self, deadline: Deadline) -> io::Result<Option<String>> {
        self.client.line(deadline)
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
    pub(super) fn refused(&self, line: &str) -> Failure {
        let words = line.strip_prefix("ERROR ").unwrap_or_default();
        let (code, text) = words.split_once(' ').unwrap_or((words, ""));
        let (socket, text) = (self.socket.display(), shown(text));
        let (exit, message) = match code {
            "denied" => (
                ExitCode::Denied,
                format!(
                    "the daemon on {socket} refused: {text}; run this as its user, as root, or as a member of its --operator-group"
                ),
            ),
            "unknown" => (ExitCode::BadData, text),
            "full" => (ExitCode::AlreadyRunning, format!("the daemon refused: {text}")),
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
