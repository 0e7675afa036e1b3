//! The commands' connection to the daemon, in protocol 2 (docs/protocol.md), and the errors when it does not answer.
//! Lines and deadlines are handled by [`shiftboss_protocol::client`].

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{User, getuid};
use serde::de::DeserializeOwned;
use shiftboss_protocol::client::{Connection, Deadline, is_timeout, within};
use shiftboss_protocol::verbs::{Lease, Name, Verb, checked};
use shiftboss_protocol::wire::answers::Answer as Line;
use shiftboss_protocol::wire::session::Hello;

use crate::escape::shown;
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;

/// Most bytes that are sent before answers are read, except for a single longer line: their answers fit into the
/// socket, so that neither side waits for the other.
pub const BATCH_BYTES: usize = 32 * 1024;

/// A connection that was greeted.
pub struct Session {
    pub connection: Connection,
    socket: PathBuf,
    timeout: Duration,
    /// Of the requests that were sent last.
    deadline: Deadline,
}

/// The answer to a request: one JSON object, parsed and as the daemon sent it.
pub struct Answer<T> {
    pub line: String,
    pub object: T,
}

pub fn ask<V: Verb<Answer: DeserializeOwned>>(
    socket: &Path,
    request: V,
    timeout: Duration,
) -> Result<Answer<V::Answer>, Failure> {
    Session::begin(socket, &[request], timeout)?.answer::<V>()
}

/// The same in the name of a person whom the daemon is to remember.
pub fn ask_as<V: Verb<Answer: DeserializeOwned>>(
    socket: &Path,
    by: Name,
    request: V,
    timeout: Duration,
) -> Result<Answer<V::Answer>, Failure> {
    Session::begin_as(socket, by, &[request], timeout)?.answer::<V>()
}

impl Session {
    /// Connects, and sends the greeting and the requests in one write; their answers must be read.
    pub fn begin<V: Verb>(
        socket: &Path,
        requests: &[V],
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let by = Name::resembling(&format!("shiftboss-{}", V::NAME.to_lowercase()));
        Self::begin_as(socket, by, requests, timeout)
    }

    /// The same in the name of a person.
    pub fn begin_as<V: Verb>(
        socket: &Path,
        by: Name,
        requests: &[V],
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let deadline = within(timeout);
        let connection = Connection::connect(socket, deadline)
            .map_err(|error| no_answer(socket, timeout, &error))?;
        let mut session = Self { connection, socket: socket.to_owned(), timeout, deadline };
        let hello = Hello { worker: by, lease: Lease::USUAL };
        session.send_lines(&format!("{hello}\n{}", lines(requests)))?;
        let greeting = session.connection.line(session.deadline);
        match greeting.map_err(|error| session.no_answer(&error))? {
            None => Err(session.silent(&V::NAME.to_lowercase())),
            Some(line) => match Line::read(line.as_bytes()) {
                Some(Line::Hello) => Ok(session),
                _ => Err(session.refused(&line)),
            },
        }
    }

    /// Sends requests whose answers must be read. Their time begins now.
    pub fn send(&mut self, requests: &[impl Verb]) -> Result<(), Failure> {
        self.send_lines(&lines(requests))
    }

    fn send_lines(&mut self, lines: &str) -> Result<(), Failure> {
        self.deadline = within(self.timeout);
        let sent = self.connection.send(lines.as_bytes(), self.deadline);
        sent.map_err(|error| self.no_answer(&error))
    }

    /// The answer to the next request that was sent.
    pub fn answer<V: Verb<Answer: DeserializeOwned>>(
        &mut self,
    ) -> Result<Answer<V::Answer>, Failure> {
        let line = self.connection.line(self.deadline);
        let line = line.map_err(|error| self.no_answer(&error))?.ok_or_else(|| {
            let why = "the daemon closed the connection without an answer";
            self.no_answer(&io::Error::new(ErrorKind::UnexpectedEof, why))
        })?;
        match serde_json::from_str(&line) {
            Ok(object) => Ok(Answer { line, object }),
            Err(_) => Err(self.refused(&line)),
        }
    }

    pub fn no_answer(&self, error: &io::Error) -> Failure {
        no_answer(&self.socket, self.timeout, error)
    }

    /// A close in silence: what a daemon does that does not know the greeting.
    fn silent(&self, name: &str) -> Failure {
        let text = format!(
            "the daemon on {} closed the connection without a word: it runs with --classic, \
             where there is no `{name}` ({} shows it), or it is stopping",
            self.socket.display(),
            hint("status")
        );
        Failure::new(ExitCode::Unavailable, text)
    }

    /// `ERROR code text`, or nothing that we know.
    fn refused(&self, line: &str) -> Failure {
        let words = line.strip_prefix("ERROR ").unwrap_or_default();
        let (code, text) = words.split_once(' ').unwrap_or((words, ""));
        let (exit, before, after) = match code {
            "denied" => (ExitCode::Denied, "refused: ", ""),
            "unknown" | "held" | "listed" | "classic" => {
                return Failure::new(ExitCode::BadData, text);
            }
            "full" => (ExitCode::AlreadyRunning, "refused: ", ""),
            "busy" => (ExitCode::Unavailable, "cannot do it now: ", "; try again"),
            "unsupported" => (ExitCode::Configuration, "is older than this command: ", ""),
            "version" => {
                (ExitCode::Configuration, "speaks another version: ", "; use its own shiftboss")
            }
            _ => {
                let (socket, line) = (self.socket.display(), shown(line));
                let text =
                    format!("{socket} answered {line:?}: is it the socket of `shiftboss serve`?");
                return Failure::new(ExitCode::Unavailable, text);
            }
        };
        let socket = self.socket.display();
        Failure::new(exit, format!("the daemon on {socket} {before}{text}{after}"))
    }
}

/// Why there is no answer after `timeout`, and what may help.
pub fn no_answer(socket: &Path, timeout: Duration, error: &io::Error) -> Failure {
    let (code, hint) = match error.kind() {
        _ if is_timeout(error) => {
            (ExitCode::Unavailable, "see the daemon's log, or give a longer --timeout".to_owned())
        }
        ErrorKind::UnexpectedEof => (ExitCode::Unavailable, "its log says why".to_owned()),
        ErrorKind::PermissionDenied => (ExitCode::Denied, who_may_connect(socket)),
        _ => (ExitCode::Unavailable, "is `shiftboss serve` running with this socket?".to_owned()),
    };
    let why = match is_timeout(error) {
        true => format!("waited {}", humantime::format_duration(timeout)),
        false => error.to_string(),
    };
    Failure::new(code, format!("no answer from {}: {why}; {hint}", socket.display()))
}

fn who_may_connect(socket: &Path) -> String {
    let options = "--socket-mode and --socket-group of the daemon decide who may connect";
    match socket.metadata() {
        Ok(it) => {
            let (mode, uid, gid) = (it.mode() & 0o777, it.uid(), it.gid());
            format!("{options}: the socket has mode {mode:04o}, user {uid} and group {gid}")
        }
        Err(_) => format!("{options}, and so do the directories of the socket"),
    }
}

fn lines(requests: &[impl Verb]) -> String {
    requests.iter().map(|request| format!("{request}\n")).collect()
}

/// This process's user by name, or by number.
pub fn this_user() -> Name {
    let name = User::from_uid(getuid()).ok().flatten().and_then(|user| checked(&user.name).ok());
    name.unwrap_or_else(|| Name::resembling(&format!("uid-{}", getuid())))
}
