//! The target of a command: a queue's database, or its daemon's socket. Given with -t, or else found in
//! SHIFTBOSS_TARGET or in the configuration file.
//!
//! Used by all commands that have a target. Any kind serves any command that can use it. A look at a queue asks no
//! daemon: the lock file shows whether one runs, and the rest is in the database (read-only); so it works whether or
//! not one runs. An order goes to a daemon's socket: for a file, the lock file names it; for a server, the table of
//! daemons.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::answers::live::{Daemon, Report};
use shiftboss_queue::reader::{ReadResult, Reader};

use crate::config;
use crate::exit::{ExitCode, Failure};
use crate::hint::remember;
use crate::lock::{self, LockState};
use crate::socket::check_length;
use crate::stores::{self, Database};

/// The configuration file of the packages.
pub const PACKAGED_CONFIGURATION: &str = "/etc/shiftboss.toml";
/// Daemons that share a queue are on machines of their own.
const ASK_A_SOCKET: &str = "a daemon that uses it is found by its socket: give that instead";
/// Commands that are for one daemon of a queue, not for all of it.
const FOR_ONE: [&str; 3] = ["drain", "run-fetcher", "accept-input"];
/// The first bytes of a database.
const DATABASE_BEGINS: &[u8] = b"SQLite format 3\0";

/// The option of every command that has a target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Asked {
    /// The queue's database (a path, or the URL of a PostgreSQL database), or its daemon's socket
    ///
    /// Also before the command. If it is left out: SHIFTBOSS_TARGET, else what the configuration file says (SHIFTBOSS_CONFIG, else
    /// /etc/shiftboss.toml).
    #[arg(short, long, value_name = "DATABASE|SOCKET|URL")]
    target: Option<PathBuf>,
}

/// Where a queue and its daemon are, as far as it was given.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
struct Places {
    database: Option<Database>,
    socket: Option<PathBuf>,
}

impl Places {
    /// The target in a configuration file; the rest of the file may be wrong.
    fn of_file(file: &Path) -> Result<Self, Failure> {
        let file = config::File::read(file)?;
        let (said, directory): (Self, _) = (file.some()?, file.directory());
        Ok(Self {
            database: said.database.map(|database| database.below(directory)),
            socket: said.socket.map(|path| directory.join(path)),
        })
    }

    /// The target of one word: if it is neither a file nor a URL, it is a socket, or was one.
    fn of_word(word: PathBuf) -> Self {
        match Database::from(word) {
            Database::File(path) if !path.is_file() => {
                Self { socket: Some(path), ..Self::default() }
            }
            database => Self { database: Some(database), ..Self::default() },
        }
    }

    /// The environment's target, else that of the file that it names, else that of the packages' file.
    fn usual(
        variable: impl Fn(&str) -> Option<OsString>,
        packaged: &Path,
    ) -> Result<Self, Failure> {
        let path = |name| variable(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        match (path("SHIFTBOSS_TARGET"), path("SHIFTBOSS_CONFIG")) {
            (Some(target), _) => Ok(Self::of_word(target)),
            (None, Some(file)) => Self::of_file(&file),
            (None, None) if packaged.exists() => Self::of_file(packaged),
            (None, None) => Ok(Self::default()),
        }
    }
}

impl Asked {
    pub fn is_typed(&self) -> bool {
        self.target.is_some()
    }

    fn places(&self) -> Result<Places, Failure> {
        let Some(typed) = &self.target else {
            return Places::usual(|name| env::var_os(name), PACKAGED_CONFIGURATION.as_ref());
        };
        remember(typed);
        Ok(Places::of_word(typed.clone()))
    }

    /// The database that is meant, and its daemon if one runs.
    pub fn find(&self) -> Result<Target, Failure> {
        let Places { database, socket } = self.places()?;
        let given = database.or(socket.map(Database::File)).ok_or_else(nothing_said)?;
        let database = database_of(&given)?;
        let daemon = match (&database, &given) {
            (Database::File(path), _) => lock::state_of(path),
            (Database::Server(_), Database::File(socket)) => lock::state_of(socket),
            (Database::Server(_), Database::Server(_)) => LockState::Unknown(ASK_A_SOCKET),
        };
        Ok(Target { database, daemon })
    }

    /// The database itself, for commands that need no daemon.
    pub fn database(&self) -> Result<Database, Failure> {
        Ok(self.find()?.database)
    }

    /// The socket of a daemon of the queue, for a command.
    pub fn socket(&self, command: &str) -> Result<PathBuf, Failure> {
        let found = self.sockets()?;
        if found.len() > 1 && FOR_ONE.contains(&command) {
            let sockets: Vec<_> = found.iter().map(|it| it.display().to_string()).collect();
            return Err(Failure::usage(format!(
                "`{command}` is for one daemon, and several of this queue run here: give the socket of one with -t: {}",
                sockets.join(", ")
            )));
        }
        found.into_iter().next().ok_or_else(nothing_said)
    }

    /// The sockets of the daemons that can be reached from here; at least one.
    fn sockets(&self) -> Result<Vec<PathBuf>, Failure> {
        let socket = match self.places()? {
            Places { socket: Some(socket), .. } => socket,
            Places { database: Some(Database::File(path)), .. } => match lock::state_of(&path) {
                LockState::By(daemon) => daemon.socket,
                LockState::Free => {
                    let text = format!("no daemon runs on {}", path.display());
                    return Err(Failure::new(ExitCode::Unavailable, text));
                }
                LockState::Unknown(why) => {
                    let path = path.display();
                    let text = format!(
                        "the daemon of {path} is not known: {why}; give its socket with -t"
                    );
                    return Err(Failure::new(ExitCode::Unavailable, text));
                }
            },
            Places { database: Some(server @ Database::Server(_)), .. } => {
                return sockets_here(&server);
            }
            Places { .. } => return Err(nothing_said()),
        };
        check_length(&socket, ExitCode::Usage)?;
        Ok(vec![socket])
    }
}

fn nothing_said() -> Failure {
    Failure::usage(format!(
        "which queue? Give its database or its daemon's socket with -t, set SHIFTBOSS_TARGET, or name them in {PACKAGED_CONFIGURATION}"
    ))
}

/// The sockets of those daemons of a queue on a server that run on this machine: each has the lock of its socket.
fn sockets_here(server: &Database) -> Result<Vec<PathBuf>, Failure> {
    let status = ask(server, |reader, now| reader.status(now))?;
    let here = status.daemons.iter().filter(|daemon| daemon.runs()).filter_map(|daemon| {
        let holder = lock::holder_of(daemon.socket.as_deref()?.as_ref())?;
        let is_it = daemon.pid == Some(holder.pid.into()) && holder.database == server.name();
        is_it.then_some(holder.socket)
    });
    let here: Vec<PathBuf> = here.collect();
    if here.is_empty() {
        let text = format!(
            "no daemon of {server} runs on this machine: where one runs, give its socket with -t (`shiftboss status` shows where)"
        );
        return Err(Failure::usage(text));
    }
    Ok(here)
}

/// A database that is looked at, and the daemon that keeps it; on a server it is the one whose socket was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub database: Database,
    /// Its daemon, if one runs.
    pub daemon: LockState,
}

impl Target {
    /// The result as one line of JSON, in the envelope that all objects have.
    pub fn json(&self, found: &impl Serialize) -> Result<String, Failure> {
        let (daemon, daemon_unknown) = match &self.daemon {
            LockState::Free => (None, None),
            LockState::By(daemon) => (Some(daemon.clone()), None),
            LockState::Unknown(why) => (None, Some((*why).to_owned())),
        };
        let database = self.database.name();
        let report = Report { database, daemon, daemon_unknown, found };
        serde_json::to_string(&report)
            .map(|line| line + "\n")
            .map_err(Failure::of(ExitCode::Internal))
    }
}

/// Asks a database, whether or not a daemon keeps it.
pub fn ask<T>(
    database: &Database,
    question: impl FnOnce(&dyn Reader, i64) -> ReadResult<T>,
) -> Result<T, Failure> {
    question(&*stores::reader(database)?, SystemClock.now()).map_err(stores::read_failure)
}

/// The database itself, or that of the daemon that listens on a socket, or did until it was killed.
fn database_of(target: &Database) -> Result<Database, Failure> {
    let Some(target) = target.file() else {
        return Ok(target.clone());
    };
    if let Some(holder) = lock::holder_of(target) {
        return queue_of(holder, target);
    }
    let shown = target.display();
    let why = match fs::symlink_metadata(target) {
        Ok(found) if found.file_type().is_socket() => format!("no daemon listens on {shown}"),
        // A clean stop removes the socket, and leaves its lock file.
        Err(error) if error.kind() == ErrorKind::NotFound && lock::file_of(target).exists() => {
            format!("there is nothing at {shown} any more")
        }
        _ => {
            return std::path::absolute(target)
                .map(Database::File)
                .map_err(|error| Failure::usage(format!("{shown}: {error}")));
        }
    };
    let Some(left) = lock::noted(target) else {
        let text = format!(
            "{why}: a daemon that stopped leaves no socket (start it, or give its database); a database that is not there was moved or deleted (look for it: a daemon that starts would begin an empty one)"
        );
        return Err(Failure::new(ExitCode::Unavailable, text));
    };
    queue_of(left, target)
}

/// The database of the daemon that listens on a socket, or did.
fn queue_of(holder: Daemon, socket: &Path) -> Result<Database, Failure> {
    let database: Database = holder.database.into();
    if !database.is_broker() {
        return Ok(database);
    }
    let text = format!(
        "{} is the socket of a relay, which has no queue to look at: ask where the daemon runs that serves it",
        socket.display()
    );
    Err(Failure::new(ExitCode::Unavailable, text))
}

/// Whether a word of a command line is a target, not a key: a database, or a daemon's present or former socket.
pub fn is_target(word: &Path) -> bool {
    let begins = |file: File| {
        let mut begin = Vec::new();
        let read = file.take(DATABASE_BEGINS.len() as u64).read_to_end(&mut begin);
        read.is_ok() && begin == DATABASE_BEGINS
    };
    let is_socket = fs::metadata(word).is_ok_and(|found| found.file_type().is_socket());
    let is_file = word.is_file() && File::open(word).is_ok_and(begins);
    is_file || is_socket || stores::is_server(word) || lock::file_of(word).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment comes before the file, a path in the file is relative to its directory, and a word is a socket
    /// or a database.
    #[test]
    fn what_is_usual() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shiftboss.toml");
        fs::write(&file, "database = 'a.db'\nsocket = '/run/s'\nleese = 1").unwrap();
        let database = directory.path().join("b.db");
        fs::write(&database, "").unwrap();
        let found = |packaged: &Path, said: &[(&str, &Path)]| {
            let value = |name: &str| said.iter().find(|(said, _)| *said == name);
            let variable = |name: &str| value(name).map(|(_, value)| OsString::from(value));
            let places = Places::usual(variable, packaged).map_err(|error| error.code())?;
            Ok((places.database.map(|it| it.name()), places.socket))
        };
        let path = |text: &str| Some(PathBuf::from(text));
        let of_file = Ok((Some(directory.path().join("a.db")), path("/run/s")));
        let (nowhere, empty) = (Path::new("/nowhere"), Path::new(""));
        assert_eq!(found(&file, &[]), of_file);
        assert_eq!(found(nowhere, &[("SHIFTBOSS_CONFIG", &file)]), of_file);
        assert_eq!(found(&file, &[("SHIFTBOSS_TARGET", empty)]), of_file);
        let target = |word| ("SHIFTBOSS_TARGET", word);
        assert_eq!(found(&file, &[target(Path::new("s"))]), Ok((None, path("s"))));
        let url = Path::new("postgres://h/db");
        for word in [url, &database] {
            let both = [target(word), ("SHIFTBOSS_CONFIG", nowhere)];
            assert_eq!(found(&file, &both), Ok((Some(word.to_owned()), None)));
        }
        assert_eq!(found(nowhere, &[]), Ok((None, None)));
        let code = Err(ExitCode::Configuration);
        assert_eq!(found(&file, &[("SHIFTBOSS_CONFIG", nowhere)]), code);
    }

    /// A key is not a target, even if it is a URL.
    #[test]
    fn what_is_a_target() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        fs::write(path("state.db"), [DATABASE_BEGINS, b"..."].concat()).unwrap();
        fs::write(path("text"), "alpha 1").unwrap();
        for word in [path("socket"), path("state.db"), "postgres://h/db".into()] {
            assert!(is_target(&word), "{word:?}");
        }
        for word in [path("text"), path("nothing"), "https://example.org/".into(), "a".into()] {
            assert!(!is_target(&word), "{word:?}");
        }
    }
}
