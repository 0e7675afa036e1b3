//! The target of a command, its database or its daemon's socket, and where it is looked for when it is left out:
//! `shiftboss why KEY` is `shiftboss why TARGET KEY` on the usual target.
//!
//! Used by all commands that have a target. Those that look at a queue ask nobody: the lock file tells whether a
//! daemon runs, the database (read-only) the rest. So they work whether or not one runs.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::{Daemon, Report};
use shiftboss_queue::reader::{ReadResult, Reader};

use crate::config::{self, Checked};
use crate::exit::{ExitCode, Failure};
use crate::lock::{self, LockState};
use crate::socket::check_length;
use crate::stores::{self, Database};

/// The configuration file of the packages.
pub const PACKAGED_CONFIGURATION: &str = "/etc/shiftboss.toml";
/// Daemons that share a queue are on machines of their own.
const ASK_A_SOCKET: &str = "a daemon that uses it is found by its socket: give that instead";
/// What a database begins with.
const DATABASE_BEGINS: &[u8] = b"SQLite format 3\0";

/// Where a daemon is: what the environment or a configuration file says.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
struct DaemonPaths {
    database: Option<Database>,
    socket: Option<PathBuf>,
}

impl Checked for DaemonPaths {}

impl DaemonPaths {
    /// What a configuration file says; what else stands in it may be wrong.
    fn of_file(file: &Path) -> Result<Self, Failure> {
        let (said, file): (Self, _) = config::read(file)?;
        let directory = file.parent().unwrap_or(Path::new("/"));
        Ok(Self {
            database: said.database.map(|database| database.below(directory)),
            socket: said.socket.map(|path| directory.join(path)),
        })
    }
}

/// The first target that the environment or the packages' file has, of those that `choose` takes.
fn usual<T>(choose: impl Fn(DaemonPaths) -> Option<T>) -> Result<Option<T>, Failure> {
    usual_in(|name| env::var_os(name), PACKAGED_CONFIGURATION.as_ref(), choose)
}

/// The same, where `variable` is the environment.
fn usual_in<T>(
    variable: impl Fn(&str) -> Option<OsString>,
    packaged: &Path,
    choose: impl Fn(DaemonPaths) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let path = |name| variable(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let database = path("SHIFTBOSS_DATABASE").map(Database::from);
    let said = DaemonPaths { database, socket: path("SHIFTBOSS_SOCKET") };
    if let Some(found) = choose(said) {
        return Ok(Some(found));
    }
    match path("SHIFTBOSS_CONFIG") {
        Some(file) => DaemonPaths::of_file(&file).map(choose),
        None if packaged.exists() => DaemonPaths::of_file(packaged).map(choose),
        None => Ok(None),
    }
}

/// A database that is looked at, and the daemon that keeps it; on a server it is the one whose socket was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub database: Database,
    /// Its daemon, if one runs.
    pub daemon: LockState,
}

impl Target {
    /// Finds the database that is meant: the given one, that of a configuration file, or the usual one; and its daemon
    /// if one runs.
    pub fn find(given: Option<PathBuf>, config: Option<&Path>) -> Result<Self, Failure> {
        let target = either(given, config)?;
        let database = database_of(&target)?;
        let daemon = match (&database, &target) {
            (Database::File(path), _) => lock::state_of(path),
            (Database::Server(_), Database::File(socket)) => lock::state_of(socket),
            (Database::Server(_), Database::Server(_)) => LockState::Unknown(ASK_A_SOCKET),
        };
        Ok(Self { database, daemon })
    }
}

impl Target {
    /// What was found as one line of JSON: in the envelope that all objects have.
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

/// The database of whoever listens on a socket, or did.
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

/// The database or the socket that a command looks at.
fn either(given: Option<PathBuf>, config: Option<&Path>) -> Result<Database, Failure> {
    let choose = |paths: DaemonPaths| paths.database.or(paths.socket.map(Database::File));
    let found = match (given, config) {
        (Some(_), Some(_)) => return Err(Failure::usage("give a target or --config, not both")),
        (None, Some(file)) => choose(DaemonPaths::of_file(file)?),
        (Some(given), None) => Some(given.into()),
        (None, None) => usual(choose)?,
    };
    found.ok_or_else(|| {
        Failure::usage(format!(
            "which daemon? Give its database or its socket, set SHIFTBOSS_DATABASE or SHIFTBOSS_SOCKET, or name them in {PACKAGED_CONFIGURATION}"
        ))
    })
}

/// The socket on which `command` talks to the daemon: the given one, or the usual one.
pub fn socket(given: Option<PathBuf>, command: &str) -> Result<PathBuf, Failure> {
    let found = match given {
        Some(given) => Some(given),
        None => usual(|paths| paths.socket)?,
    };
    let needs = format!("`{command}` needs the daemon's socket");
    match found {
        Some(path) if is_database(&path) => {
            let database = Database::from(path);
            let text = match &database {
                Database::File(_) => format!("{needs}; {database} is a database"),
                Database::Server(_) => format!(
                    "{needs}; {database} is a database on a server: ask one of its daemons: \
                     `shiftboss {command} SOCKET`, on that daemon's machine"
                ),
            };
            Err(Failure::usage(text))
        }
        Some(path) => check_length(&path, ExitCode::Usage).map(|()| path),
        None => Err(Failure::usage(format!(
            "{needs}: give it, set SHIFTBOSS_SOCKET, or name it in {PACKAGED_CONFIGURATION}"
        ))),
    }
}

fn is_database(path: &Path) -> bool {
    if Database::from(path.to_owned()).file().is_none() {
        return true;
    }
    let begins = |file: File| {
        let mut begin = Vec::new();
        let read = file.take(DATABASE_BEGINS.len() as u64).read_to_end(&mut begin);
        read.is_ok() && begin == DATABASE_BEGINS
    };
    path.is_file() && File::open(path).is_ok_and(begins)
}

/// What is at the path of a target, or was as long as its daemon ran; `None`: nothing of a daemon's.
fn kind_of(path: &Path) -> Option<&'static str> {
    if is_database(path) {
        return Some("a database");
    }
    let is_socket = fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    (is_socket || lock::file_of(path).exists()).then_some("a daemon's socket")
}

/// The words of a command whose first one, the target, may be left out. The number of arguments decides: where
/// the last of `words` is missing, there is no target, and all of them move up.
pub fn move_up<const N: usize>(
    target: Option<PathBuf>,
    words: [Option<String>; N],
    names: [&str; N],
) -> Result<(Option<PathBuf>, [String; N]), Failure> {
    let is_left_out = words.last().is_none_or(Option::is_none);
    let (target, first) = if is_left_out { (None, target) } else { (target, None) };
    let first = first.map(|word| word.into_os_string().into_string()).transpose();
    let first = first.map_err(|word| Failure::usage(format!("{word:?} is not UTF-8")))?;
    let words: Vec<String> = first.into_iter().chain(words.into_iter().flatten()).collect();
    if let Some(last) = names.last()
        && words.len() == N
        && let Some(first) = words.first().map(Path::new)
        && is_left_out
        && let Some(kind) = kind_of(first)
    {
        let text = format!(
            "{last} is missing: {} is {kind}; give {} after it",
            Database::from(first.to_owned()),
            names.join(" ")
        );
        return Err(Failure::usage(text));
    }
    let missing = names.get(words.len()).copied().unwrap_or_default();
    let text = format!("{missing} is missing: `--help` shows what is to be given");
    Ok((target, words.try_into().map_err(|_| Failure::usage(text))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved<const N: usize>(typed: &[&str], names: [&str; N]) -> Result<String, String> {
        let word = |at: usize| typed.get(at).map(|&word| word.to_owned());
        let words = std::array::from_fn(|at| word(at + 1));
        let moved = move_up(word(0).map(PathBuf::from), words, names);
        moved.map(|found| format!("{found:?}")).map_err(|failure| failure.to_string())
    }

    /// How many there are decides which word is the target; what is missing is named.
    #[test]
    fn the_number_of_words_decides() {
        let add = ["KEY", "PAYLOAD"];
        assert_eq!(moved(&["s", "k", "p"], add).unwrap(), r#"(Some("s"), ["k", "p"])"#);
        assert_eq!(moved(&["k", "p"], add).unwrap(), r#"(None, ["k", "p"])"#);
        assert!(moved(&["k"], add).unwrap_err().starts_with("PAYLOAD is missing"));
        assert!(moved(&[], add).unwrap_err().starts_with("KEY is missing"));
        assert_eq!(moved(&["s", "k"], ["KEY"]).unwrap(), r#"(Some("s"), ["k"])"#);
        assert_eq!(moved(&["k"], ["KEY"]).unwrap(), r#"(None, ["k"])"#);
    }

    /// Where the last word is forgotten, a target is not taken for what is to stand behind it.
    #[test]
    fn a_target_is_no_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (socket, database) = (path("socket"), path("state.db"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        fs::write(&database, [DATABASE_BEGINS, b"..."].concat()).unwrap();
        let said = moved(&[&socket], ["KEY"]).unwrap_err();
        let expected = "is a daemon's socket; give KEY after it";
        assert!(said.starts_with("KEY is missing: ") && said.ends_with(expected), "{said}");
        let said = moved(&[&database], ["KEY"]).unwrap_err();
        assert!(said.contains("state.db is a database; "), "{said}");
        let said = moved(&[&socket, "k"], ["KEY", "PAYLOAD"]).unwrap_err();
        assert!(said.starts_with("PAYLOAD is missing: "), "{said}");
        assert!(
            moved(&[&path("else")], ["KEY"]).is_ok() && moved(&[&socket, "k"], ["KEY"]).is_ok()
        );
    }

    /// The environment comes before the file, and for a look the database before the socket.
    #[test]
    fn what_is_usual() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shiftboss.toml");
        std::fs::write(&file, "database = 'a.db'\nsocket = '/run/s'\nleese = 1").unwrap();
        let found = |packaged: &Path, said: &[(&str, &str)]| {
            let variable = |name: &str| {
                let value = said.iter().find(|(said, _)| *said == name);
                value.map(|(_, value)| OsString::from(value))
            };
            let look = usual_in(variable, packaged, |paths| {
                paths.database.map(|database| database.name()).or(paths.socket)
            });
            let socket = usual_in(variable, packaged, |paths| paths.socket);
            (look.map_err(|error| error.code()), socket.ok().flatten())
        };
        let path = |text: &str| Some(PathBuf::from(text));
        let of_file = Some(directory.path().join("a.db"));
        let (nowhere, socket) = (Path::new("/nowhere"), ("SHIFTBOSS_SOCKET", "w"));
        assert_eq!(found(&file, &[]), (Ok(of_file.clone()), path("/run/s")));
        assert_eq!(found(&file, &[("SHIFTBOSS_SOCKET", "")]), (Ok(of_file), path("/run/s")));
        assert_eq!(found(&file, &[socket]), (Ok(path("w")), path("w")));
        let database = ("SHIFTBOSS_DATABASE", "d");
        assert_eq!(found(&file, &[socket, database]), (Ok(path("d")), path("w")));
        assert_eq!(found(nowhere, &[database]), (Ok(path("d")), None));
        assert_eq!(found(nowhere, &[]), (Ok(None), None));
        assert_eq!(
            found(&file, &[("SHIFTBOSS_CONFIG", "/nowhere")]),
            (Err(ExitCode::Configuration), None)
        );
    }
}
