//! The configuration file: from text in TOML to typed values, with errors that name the line.
//!
//! `serve`, `relay` and `check` read it. A key is the name of an option that clap knows, at the top those of a command ([`keys`]), in
//! tables those of [`fetcher`], [`failures`], [`groups`](mod@groups) and [`retention`](mod@retention). No actor.

mod failures;
mod fetcher;
mod groups;
pub mod keys;
mod list_name;
mod retention;
pub mod values;

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Command;
use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;

use crate::exit::{ExitCode, Failure};
use keys::{Keys, definition};

use failures::{BackoffKeys, RetryKeys};
pub use failures::{backoff, retries, retries_of_single_tasks};
use fetcher::OnChangeTable;
pub use fetcher::{DaemonFiles, FetcherTable, List, Watch, check_own_files, fetchers};
use groups::GroupKeys;
pub use groups::groups;
pub use list_name::ListName;
use retention::RetentionKeys;
pub use retention::retention;

/// A longer file was not written by a person.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The tables that a file may have, with their keys as options, for the documents.
pub fn tables() -> [(&'static str, Command); 6] {
    [
        ("job_retry", definition::<RetryKeys>()),
        ("backoff", definition::<BackoffKeys>()),
        ("retention", definition::<RetentionKeys>()),
        ("group", definition::<GroupKeys>()),
        ("fetcher", definition::<FetcherTable>()),
        ("on_change", definition::<OnChangeTable>()),
    ]
}

/// An error at a position in the text, in bytes from its beginning.
#[derive(Debug)]
pub struct Fault {
    pub place: Range<usize>,
    pub what: String,
}

/// The text of a configuration file. If anything in it is wrong, none of it is in force.
pub struct File {
    path: PathBuf,
    text: String,
}

impl File {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let refused = |text: String| Failure::new(ExitCode::Configuration, text);
        let path = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
        let text = String::from_utf8(bytes(&path).map_err(refused)?).map_err(|error| {
            let before = error.utf8_error().valid_up_to();
            let line = line_of(error.as_bytes(), before);
            refused(format!("{}:{line}: this is not UTF-8", path.display()))
        })?;
        Ok(Self { path, text })
    }

    /// The directory that its paths are relative to.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Some of its keys, whatever the others are.
    pub fn some<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        toml::from_str(&self.text).map_err(|error| self.wrong(not_toml(&error)))
    }

    /// All of it.
    pub fn all<T: Keys>(&self) -> Result<(T, keys::Said), Failure> {
        self.behind(&keys::Written::new())
    }

    /// The whole file, after what was written elsewhere.
    pub fn behind<T: Keys>(&self, written: &keys::Written) -> Result<(T, keys::Said), Failure> {
        let read = keys::of_text(&self.text, self.directory(), written);
        read.map_err(|fault| self.wrong(fault))
    }

    fn wrong(&self, Fault { place, what }: Fault) -> Failure {
        let line = line_of(self.text.as_bytes(), place.start);
        let text = format!("{}:{line}: {what}", self.path.display());
        Failure::new(ExitCode::Configuration, text)
    }
}

/// The library's error for a text that it cannot parse.
fn not_toml(error: &toml::de::Error) -> Fault {
    Fault { place: error.span().unwrap_or_default(), what: error.message().to_owned() }
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("cannot read the configuration file {shown}: {error}");
    // A pipe in its place must not hold up its reader.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = fs::File::from(file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("the configuration file {shown} is no file: name one"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "the configuration file {shown} has more than {FILE_BYTES_MAX} bytes: is it another file?"
        ));
    }
    Ok(bytes)
}

fn line_of(text: &[u8], place: usize) -> usize {
    1 + text.iter().take(place).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
pub mod tests;
