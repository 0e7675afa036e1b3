//! Where the keys of an order to many come from: a file, or a selection in the database. They are read in steps, and
//! again for each pass.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{Argument, FetcherName};
use shiftboss_queue::reader::{Order, Selection};

use crate::cli::ManyKeys;
use crate::commands::input;
use crate::exit::{ExitCode, Failure};
use crate::stores::Database;
use crate::target;
use crate::text::shown;
use crate::view::question::{require_fetcher, require_group};

/// Most keys of a file in one step.
const STEP: usize = 4_096;
/// A line of a file that is longer cannot be a key.
const LINE_MAX_BYTES: u64 = 8 * 1024;

/// A key that is meant, and the fetcher whose tasks alone are meant.
pub(in crate::commands::operators) type Meant = (Key, Option<FetcherName>);

pub(super) enum Source {
    /// `None`: standard input.
    File(Option<PathBuf>),
    Selected(Database, Selection),
}

impl Source {
    pub(super) fn of(of: &ManyKeys, order: Order) -> Result<Self, Failure> {
        if let Some(file) = &of.file {
            return Ok(Self::File(Some(file.clone()).filter(|it| it != Path::new("-"))));
        }
        let database = of.daemon.target.database()?;
        if let Some(name) = &of.fetcher {
            target::ask(&database, |reader, _| require_fetcher(reader, name))??;
        }
        if let Some(name) = &of.group {
            target::ask(&database, |reader, _| require_group(reader, name))??;
        }
        let prefix = of.prefix.clone().unwrap_or_default();
        let (fetcher, group) = (of.fetcher.clone(), of.group.clone());
        Ok(Self::Selected(database, Selection { order, prefix, fetcher, group }))
    }

    pub(super) fn is_spent_by_counting(&self) -> bool {
        matches!(self, Self::File(None))
    }

    /// Gives all keys to `take`, in steps, each with the number of held keys that were left out; returns how many lines
    /// of a file are no keys. `names`: says which.
    pub(super) fn each_step(
        &self,
        names: bool,
        take: &mut dyn FnMut(Vec<Meant>, u64) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        match self {
            Self::File(path) => lines(path.as_deref(), names, take),
            Self::Selected(database, selection) => {
                let mut behind = None;
                loop {
                    let found = target::ask(database, |reader, now| {
                        reader.select(now, selection, behind.as_ref())
                    })?;
                    // An invalid key in the database would make another request of this.
                    let keys = found.keys.into_iter().filter_map(|(key, fetcher)| {
                        let fetcher = match fetcher {
                            Some(name) => Some(FetcherName::read(&name)?),
                            None => None,
                        };
                        Some((Key::new(key.as_str()).ok()?, fetcher))
                    });
                    take(keys.collect(), found.held)?;
                    behind = found.behind;
                    if behind.is_none() {
                        return Ok(0);
                    }
                }
            }
        }
    }
}

fn lines(
    path: Option<&Path>,
    names: bool,
    take: &mut dyn FnMut(Vec<Meant>, u64) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (name, file) = input::open(path);
    let bad = |why: String| Failure::new(ExitCode::BadData, format!("{}: {why}", shown(&name)));
    let mut file = BufReader::new(file.map_err(|error| bad(error.to_string()))?);
    let (mut keys, mut number, mut faulty) = (Vec::new(), 0_u64, 0);
    loop {
        let mut line = Vec::new();
        let read = file.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line);
        let length = read.map_err(|error| bad(error.to_string()))?;
        number += 1;
        if length as u64 == LINE_MAX_BYTES {
            return Err(bad(format!(
                "line {number} is too long to be a key, and ends the reading"
            )));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned()) {
            Ok("") => {}
            text => match text.and_then(|it| Key::new(it).map_err(|error| error.to_string())) {
                Ok(key) => keys.push((key, None)),
                Err(why) => {
                    faulty += 1;
                    if names {
                        // There may be no reader.
                        let _ = writeln!(io::stderr(), "{name}: line {number} is no key: {why}");
                    }
                }
            },
        }
        if length == 0 || keys.len() == STEP {
            take(std::mem::take(&mut keys), 0)?;
        }
        if length == 0 {
            return Ok(faulty);
        }
    }
}
