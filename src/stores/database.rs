//! Where a queue is kept: in a file, or in a database on a PostgreSQL server, which a URL names.
//!
//! Made from what the user typed, wherever a command takes a DATABASE; read by [`super`]. What is wrong with a URL is
//! only reported when it is used: the parser of the command line would quote it, with its password.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use shiftboss_protocol::url::Url;

use crate::exit::Failure;

pub(super) const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    File(PathBuf),
    Server(Url),
}

impl Database {
    /// `None`: it is on a server.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }

    /// It is a broker's URL, which a relay has in a database's place.
    pub fn is_broker(&self) -> bool {
        matches!(self, Self::Server(url) if url.begins_with(&["amqp://", "amqps://"]))
    }

    /// The file that `command` needs; for a server, an error that says what to do `instead`.
    pub fn require_file(&self, command: &str, instead: &str) -> Result<&Path, Failure> {
        self.file().ok_or_else(|| {
            Failure::usage(format!(
                "`{command}` is for a database in a file; {self} is on a server: {instead}"
            ))
        })
    }

    /// A relative path is one of this directory's.
    #[must_use]
    pub fn below(self, directory: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(directory.join(path)),
            server @ Self::Server(_) => server,
        }
    }

    /// The same from any directory.
    pub fn absolute(self) -> io::Result<Self> {
        match self {
            Self::File(path) => std::path::absolute(path).map(Self::File),
            server @ Self::Server(_) => Ok(server),
        }
    }

    /// As notes and JSON objects name it: a path, or a URL without its password.
    pub fn name(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Server(url) => url.to_string().into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Database(Database),
    /// A file for the Python supervisor.
    Supervisor(PathBuf),
}

const SUPERVISOR: &str = "supervisor.py:";

impl From<PathBuf> for Destination {
    fn from(typed: PathBuf) -> Self {
        match typed.as_os_str().as_bytes().strip_prefix(SUPERVISOR.as_bytes()) {
            Some(path) => Self::Supervisor(OsStr::from_bytes(path).into()),
            None => Self::Database(typed.into()),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(database) => database.fmt(f),
            Self::Supervisor(path) => write!(f, "{SUPERVISOR}{}", path.display()),
        }
    }
}

impl From<PathBuf> for Database {
    /// Text that begins like the URL of a server is one; so is any other URL, which is refused when it is used, unless
    /// there is a file of that name.
    fn from(typed: PathBuf) -> Self {
        let url = Url::new(typed.to_string_lossy());
        let is_url = url.begins_with(&SCHEMES) || (url.has_scheme() && !typed.exists());
        if is_url { Self::Server(url) } else { Self::File(typed) }
    }
}

impl<'de> Deserialize<'de> for Database {
    fn deserialize<D: Deserializer<'de>>(typed: D) -> Result<Self, D::Error> {
        PathBuf::deserialize(typed).map(Self::from)
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(url) => url.fmt(f),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name())
    }
}

pub fn is_server(word: &Path) -> bool {
    Url::new(word.to_string_lossy()).begins_with(&SCHEMES)
}

/// A text that quotes words of a command line, without the passwords of those that are URLs.
pub fn without_passwords(text: String, words: impl Iterator<Item = OsString>) -> String {
    let hide = |text: String, word: OsString| match Database::from(PathBuf::from(word)) {
        Database::Server(url) => text.replace(url.as_typed(), &url.to_string()),
        Database::File(_) => text,
    };
    words.fold(text, hide)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Database::from(PathBuf::from(text)).to_string()
    }

    /// A URL is shown without its password, however that is written; a path as it is.
    #[test]
    fn a_password_is_not_shown() {
        for (typed, expected) in [
            ("postgres://u:secret@h:1/db?sslmode=require", "postgres://u@h:1/db?sslmode=require"),
            ("postgresql://h/db", "postgresql://h/db"),
            ("postgres://u@h,i:5433/db", "postgres://u@h,i:5433/db"),
            ("postgres://u:secr@et@h/db", "postgres://u@h/db"),
            ("postgres://u:sec/r?et@h/db", "postgres://u@h/db"),
            ("postgres://u:secret@", "postgres://u@"),
            ("postgres://h/db?password=secret&sslmode=disable", "postgres://h/db?sslmode=disable"),
            ("postgres://h/db?p%61ssword=secret", "postgres://h/db"),
            ("/var/a:secret@b.db", "/var/a:secret@b.db"),
            ("mysql://u:secret@h/db", "mysql://u@h/db"),
            ("postgres:/u:secret@h/db", "postgres:/u@h/db"),
        ] {
            assert_eq!(shown(typed), expected);
            let debug = format!("{:?}", Database::from(PathBuf::from(typed)));
            assert_eq!(debug, format!("{expected:?}"));
        }
    }

    /// Nor is the password in errors of the command line's parser.
    #[test]
    fn a_quoted_word_has_no_password() {
        let typed = "postgres://u:secret@h/db";
        let text =
            without_passwords(format!("unexpected '{typed}'"), [OsString::from(typed)].into_iter());
        assert_eq!(text, "unexpected 'postgres://u@h/db'");
    }
}
