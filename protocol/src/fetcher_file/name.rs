//! The names of fetcher files: `FETCHER.STARTED.txt`, with `.part` while they grow (spec 4).

use std::ffi::OsStr;

use thiserror::Error;

use crate::model::{Run, TASKS_FETCHER};

/// A name of the fetcher grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    pub run: Run,
    /// It ends in `.part`.
    pub growing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    Fetcher(FileName),
    /// Apparently meant as one, but not of the grammar.
    Bad(NameFault),
    /// Ends like one and begins with a dot: a file that editors and file managers keep beside another.
    Hidden,
    Other,
}

/// Why a name that ends like a fetcher file's is not one, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NameFault(&'static str);

impl NameFault {
    const NOT_UTF8: Self = Self("the name is not UTF-8");
    const NOT_THREE_PARTS: Self =
        Self("the name is not FETCHER.NUMBER.txt or FETCHER.NUMBER.txt.part");
    const NOT_A_NUMBER: Self =
        Self("the part after the first dot is not a decimal number without a sign");
    /// It would name the same run as the name without the zero.
    const LEADING_ZERO: Self = Self("the number has a leading zero");
    const TOO_LARGE: Self = Self("the number is larger than 9223372036854775807");
    /// The name is [`TASKS_FETCHER`], whose runs are not files.
    const RESERVED: Self = Self("the fetcher's name @tasks is reserved for single tasks");
}

impl FileName {
    pub fn parse(name: &OsStr) -> Named {
        let bytes = name.as_encoded_bytes();
        let (bytes, growing) = match bytes.strip_suffix(b".part") {
            Some(stem) => (stem, true),
            None => (bytes, false),
        };
        let Some(stem) = bytes.strip_suffix(b".txt") else {
            return Named::Other;
        };
        if bytes.starts_with(b".") {
            return Named::Hidden;
        }
        match run_of(stem) {
            Ok(run) => Named::Fetcher(Self { run, growing }),
            Err(fault) => Named::Bad(fault),
        }
    }
}

impl Run {
    /// The name of its file while it grows, or once it is complete.
    pub fn file_name(&self, growing: bool) -> String {
        let part = if growing { ".part" } else { "" };
        format!("{self}.txt{part}")
    }
}

fn run_of(stem: &[u8]) -> Result<Run, NameFault> {
    let stem = std::str::from_utf8(stem).map_err(|_| NameFault::NOT_UTF8)?;
    let (fetcher, started) = stem.split_once('.').ok_or(NameFault::NOT_THREE_PARTS)?;
    if fetcher == TASKS_FETCHER {
        return Err(NameFault::RESERVED);
    }
    if started.contains('.') {
        return Err(NameFault::NOT_THREE_PARTS);
    }
    if started.is_empty() || !started.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NameFault::NOT_A_NUMBER);
    }
    if started.len() > 1 && started.starts_with('0') {
        return Err(NameFault::LEADING_ZERO);
    }
    let started = started.parse().map_err(|_| NameFault::TOO_LARGE)?;
    Ok(Run { fetcher: fetcher.into(), started })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn parse(name: &str) -> Named {
        FileName::parse(OsStr::new(name))
    }

    /// Names of the grammar are parsed into their run, and a run is written as the same name.
    #[test]
    fn good_names_name_runs() {
        for (name, fetcher, started, growing) in [
            ("f.1.txt", "f", 1, false),
            ("f.1.txt.part", "f", 1, true),
            ("a b\nc.0.txt", "a b\nc", 0, false),
            ("-.9223372036854775807.txt", "-", i64::MAX, false),
        ] {
            let Named::Fetcher(file) = parse(name) else {
                panic!("{name}: not a fetcher file");
            };
            assert_eq!(
                (&*file.run.fetcher, file.run.started, file.growing),
                (fetcher, started, growing)
            );
            assert_eq!(file.run.file_name(growing), name);
        }
    }

    /// Every bad name of spec 4 is refused with its reason.
    #[test]
    fn bad_names_say_why() {
        for (name, fault) in [
            ("a.b.txt", NameFault::NOT_A_NUMBER),
            ("a..txt", NameFault::NOT_A_NUMBER),
            ("a.txt", NameFault::NOT_THREE_PARTS),
            ("a.b.1.txt", NameFault::NOT_THREE_PARTS),
            ("f.-5.txt", NameFault::NOT_A_NUMBER),
            ("f.+5.txt", NameFault::NOT_A_NUMBER),
            ("f.1_0.txt", NameFault::NOT_A_NUMBER),
            ("f.٣.txt", NameFault::NOT_A_NUMBER),
            ("f.007.txt", NameFault::LEADING_ZERO),
            ("f.00.txt.part", NameFault::LEADING_ZERO),
            ("f.9223372036854775808.txt", NameFault::TOO_LARGE),
        ] {
            assert_eq!(parse(name), Named::Bad(fault), "{name}");
        }
        assert_eq!(
            FileName::parse(OsStr::from_bytes(b"\xff.1.txt")),
            Named::Bad(NameFault::NOT_UTF8)
        );
    }

    /// Files that programs keep beside one that they show or edit.
    #[test]
    fn names_with_a_dot_are_hidden() {
        for name in [".#f.1.txt", "._f.1.txt", ".f.1.txt", ".5.txt.part", ".txt", ".#f.1.txt.part"]
        {
            assert_eq!(parse(name), Named::Hidden, "{name}");
        }
    }

    /// Files that are not meant as lists are passed over in silence.
    #[test]
    fn other_names_are_passed_over() {
        for name in ["state.db", "f.1.txt.gz", "txt", "f.1.txt.part.tmp", "f.1.TXT", ".part"] {
            assert_eq!(parse(name), Named::Other, "{name}");
        }
    }
}
