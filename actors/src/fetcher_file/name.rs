//! The names of fetcher files (spec 4, "Names"): `FETCHER.STARTED.txt`, with `.part` at the end
//! while the file grows.
//!
//! The watcher asks it about every entry of the input directory. Whether such an entry is a
//! regular file is not known here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use thiserror::Error;

use crate::model::Run;

/// How the name of a complete file ends.
const COMPLETE: &str = ".txt";
/// What a growing file's name has after that.
const GROWING: &str = ".part";

/// A fetcher file's name: which run it holds, and whether more is to come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileName {
    /// The fetcher run.
    pub run: Run,
    /// The name ends in `.part`: the file is being written.
    pub growing: bool,
}

/// What a name in the input directory is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A fetcher file.
    Fetcher(FileName),
    /// Meant as one, but misnamed: log it once and leave it.
    Bad(BadName),
    /// None of our business.
    Other,
}

/// A name that looks like a fetcher file's but is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} is not FETCHER.NUMBER.txt or FETCHER.NUMBER.txt.part: {fault}")]
pub struct BadName {
    /// The name in quotes, with control characters and stray bytes escaped.
    pub name: String,
    /// What is wrong with it.
    pub fault: NameFault,
}

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameFault {
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// Nothing before the first dot.
    #[error("the fetcher's name is empty")]
    NoFetcher,
    /// No number between fetcher and ending.
    #[error("the number is missing")]
    NoNumber,
    /// More parts than fetcher, number and ending.
    #[error("the fetcher's name has a dot")]
    Dots,
    /// Something else than the digits 0 to 9.
    #[error("the number has other characters than the digits 0 to 9")]
    NotDecimal,
    /// Another spelling of a smaller number; two files would be one run.
    #[error("the number begins with a zero")]
    LeadingZero,
    /// Above 2^63-1.
    #[error("the number is above {}", i64::MAX)]
    TooLarge,
}

impl FileName {
    /// Says what `name` is to us.
    #[must_use]
    pub fn parse(name: &OsStr) -> Named {
        let bytes = name.as_bytes();
        let (growing, rest) = match bytes.strip_suffix(GROWING.as_bytes()) {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        let Some(stem) = rest.strip_suffix(COMPLETE.as_bytes()) else {
            return Named::Other;
        };
        match parse_stem(stem) {
            Ok(run) => Named::Fetcher(Self { run, growing }),
            Err(fault) => Named::Bad(BadName {
                name: format!("{name:?}"),
                fault,
            }),
        }
    }

    /// The name that the run's file has once it is complete.
    #[must_use]
    pub fn complete_name(&self) -> String {
        format!("{}{COMPLETE}", self.run)
    }

    /// The name that the run's file has while it grows.
    #[must_use]
    pub fn growing_name(&self) -> String {
        format!("{}{COMPLETE}{GROWING}", self.run)
    }
}

/// Reads `FETCHER.STARTED`.
fn parse_stem(stem: &[u8]) -> Result<Run, NameFault> {
    let stem = str::from_utf8(stem).map_err(|_| NameFault::NotUtf8)?;
    let (fetcher, number) = match stem.split_once('.') {
        None if stem.is_empty() => return Err(NameFault::NoFetcher),
        None => return Err(NameFault::NoNumber),
        Some(parts) => parts,
    };
    if fetcher.is_empty() {
        return Err(NameFault::NoFetcher);
    }
    Ok(Run {
        fetcher: fetcher.into(),
        started: parse_number(number)?,
    })
}

/// Reads a run's number: decimal, one spelling for each value.
fn parse_number(number: &str) -> Result<i64, NameFault> {
    if number.is_empty() {
        return Err(NameFault::NoNumber);
    }
    if number.contains('.') {
        return Err(NameFault::Dots);
    }
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NameFault::NotDecimal);
    }
    if number.len() > 1 && number.starts_with('0') {
        return Err(NameFault::LeadingZero);
    }
    number.parse().map_err(|_| NameFault::TooLarge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fault(name: &[u8]) -> NameFault {
        match FileName::parse(OsStr::from_bytes(name)) {
            Named::Bad(bad) => bad.fault,
            other => panic!("{name:?} gave {other:?}"),
        }
    }

    /// Names of the grammar give their run, and give both spellings back.
    #[test]
    fn good_names() {
        let good = [
            ("f.1.txt", "f", 1, false),
            ("f.1.txt.part", "f", 1, true),
            ("f.0.txt", "f", 0, false),
            (
                "nix pkgs-é\n.1790000000.txt",
                "nix pkgs-é\n",
                1_790_000_000,
                false,
            ),
            ("f.9223372036854775807.txt", "f", i64::MAX, false),
            ("-.7.txt.part", "-", 7, true),
        ];
        for (name, fetcher, started, growing) in good {
            let Named::Fetcher(parsed) = FileName::parse(OsStr::new(name)) else {
                panic!("{name} is a good name");
            };
            assert_eq!(
                (&*parsed.run.fetcher, parsed.run.started),
                (fetcher, started)
            );
            assert_eq!(parsed.growing, growing);
            let spelled = [parsed.complete_name(), parsed.growing_name()];
            assert_eq!(spelled[usize::from(growing)], name);
            assert_eq!(spelled[1], format!("{}.part", spelled[0]));
        }
    }

    /// Every misnamed file of spec 4 is bad, with its reason.
    #[test]
    fn bad_names() {
        let bad: [(&[u8], NameFault); 20] = [
            (b"a.b.txt", NameFault::NotDecimal),
            (b"a..txt", NameFault::NoNumber),
            (b".x.txt", NameFault::NoFetcher),
            (b".5.txt", NameFault::NoFetcher),
            (b"f.-5.txt", NameFault::NotDecimal),
            (b"f.+5.txt", NameFault::NotDecimal),
            (b"f.1_0.txt", NameFault::NotDecimal),
            (b"f. 1.txt", NameFault::NotDecimal),
            ("f.\u{663}.txt".as_bytes(), NameFault::NotDecimal),
            (b"f.007.txt", NameFault::LeadingZero),
            (b"f.00.txt.part", NameFault::LeadingZero),
            (b"f.9223372036854775808.txt", NameFault::TooLarge),
            (
                b"f.99999999999999999999999999.txt.part",
                NameFault::TooLarge,
            ),
            (b"f.1.2.txt", NameFault::Dots),
            (b"f\xff.1.txt", NameFault::NotUtf8),
            (b"f.\xff.txt.part", NameFault::NotUtf8),
            (b"notes.txt", NameFault::NoNumber),
            (b".txt", NameFault::NoFetcher),
            (b".txt.part", NameFault::NoFetcher),
            (b"..txt", NameFault::NoFetcher),
        ];
        for (name, reason) in bad {
            assert_eq!(fault(name), reason, "{:?}", OsStr::from_bytes(name));
        }
    }

    /// The message shows the name so that it can be printed, whatever bytes it has.
    #[test]
    fn bad_names_are_escaped() {
        let Named::Bad(bad) = FileName::parse(OsStr::from_bytes(b"f\xff\n\x1b.1.txt")) else {
            panic!("a name that is not UTF-8 is bad");
        };
        assert_eq!(
            bad.to_string(),
            r#""f\xFF\n\u{1b}.1.txt" is not FETCHER.NUMBER.txt or FETCHER.NUMBER.txt.part: it is not UTF-8"#
        );
    }

    /// Other files may lie in the directory without a word about them.
    #[test]
    fn other_names() {
        let other: [&[u8]; 10] = [
            b"",
            b"state.db",
            b"state.db-wal",
            b"f.1.txt.part.part",
            b"f.1.TXT",
            b"f.1.txt~",
            b"f.1.part",
            b".part",
            b"txt",
            b"\xff.log",
        ];
        for name in other {
            assert_eq!(FileName::parse(OsStr::from_bytes(name)), Named::Other);
        }
    }

    proptest! {
        /// Any run's spellings are read back as that run.
        #[test]
        fn spellings_round_trip(fetcher in "[^./\0]{1,20}", started in 0..=i64::MAX, growing: bool) {
            let file = FileName { run: Run { fetcher: fetcher.into(), started }, growing };
            let name = if growing { file.growing_name() } else { file.complete_name() };
            prop_assert_eq!(FileName::parse(OsStr::new(&name)), Named::Fetcher(file));
        }

        /// No name makes it panic, and a fetcher's name is one of its two spellings.
        #[test]
        fn any_bytes(name in prop::collection::vec(any::<u8>(), 0..40), tail in 0..3_usize) {
            let name = [&name, [&b""[..], b".txt", b".1.txt.part"][tail]].concat();
            if let Named::Fetcher(file) = FileName::parse(OsStr::from_bytes(&name)) {
                let spelled = [file.complete_name(), file.growing_name()];
                prop_assert_eq!(spelled[usize::from(file.growing)].as_bytes(), &name[..]);
            }
        }
    }
}
