//! The arguments of requests and their limits, defined once for all code that writes, reads or checks one. The
//! [table](super) of verbs uses them; commands and pages check with [`checked`] what a user typed. Plain values; no
//! line is read here.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use serde::{Deserialize, Serialize};

use crate::model::{Attempt, Key, Row};
use crate::task_line::single_task;
use crate::wire::integer;

const WAIT_SECONDS_MAX: u32 = 86_400;
/// For the name of a worker or a fetcher.
const NAME_MAX_BYTES: usize = 255;

/// A word after a space of a request, as [`Display`] writes it.
pub trait Argument: Sized + Display {
    /// It takes the rest of its line, spaces included; any other ends at the next space.
    const TAKES_REST: bool = false;
    /// What it may be, for people; empty: any word.
    const LIMITS: &'static str = "";
    /// Its value if it is left out; `None`: it must be there.
    const LEFT_OUT: Option<Self> = None;
    /// It begins with its name and `=`, so that one before it may be left out.
    const IS_NAMED: bool = false;

    /// `None`: it is beyond its limits.
    fn read(text: &str) -> Option<Self>;
}

/// Checks an argument that a user typed.
///
/// # Errors
/// What to give instead.
pub fn checked<A: Argument>(text: &str) -> Result<A, String> {
    A::read(text).ok_or_else(|| format!("give {}", A::LIMITS))
}

/// The arguments of a line that are not taken yet; `None`: there are no more.
pub struct Words<'a>(pub(crate) Option<&'a str>);

impl<'a> Words<'a> {
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        let rest = self.0.take()?;
        let (word, rest) =
            rest.split_once(' ').map_or((rest, None), |(word, rest)| (word, Some(rest)));
        self.0 = rest;
        Some(word)
    }

    pub(crate) fn take<A: Argument>(&mut self) -> Option<A> {
        let is_named = |rest: &&str| rest.split(' ').next().unwrap_or_default().contains('=');
        let is_another = !A::IS_NAMED && !A::TAKES_REST && self.0.as_ref().is_some_and(is_named);
        if let Some(left_out) = A::LEFT_OUT.filter(|_| is_another) {
            return Some(left_out);
        }
        match if A::TAKES_REST { self.0.take() } else { self.word() } {
            Some(text) => A::read(text),
            None => A::LEFT_OUT,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Argument for Key {
    fn read(text: &str) -> Option<Self> {
        Self::new(text).ok()
    }
}

impl Argument for Attempt {
    fn read(text: &str) -> Option<Self> {
        number(text).map(Self)
    }
}

impl Argument for i64 {
    fn read(text: &str) -> Option<Self> {
        integer(text)
    }
}

impl Argument for Row {
    const TAKES_REST: bool = true;
    const LIMITS: &'static str =
        "KEY PAYLOAD, at most 1048576 bytes together, without white space at their ends";

    fn read(text: &str) -> Option<Self> {
        single_task(text.as_bytes()).ok()
    }
}

/// How many entries of a listing to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(u32);

impl Count {
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

impl Argument for Count {
    const LIMITS: &'static str = "1 to 10000";

    fn read(text: &str) -> Option<Self> {
        number(text).filter(|count| (1..=10_000).contains(count)).map(Self)
    }
}

/// How long a request waits for a job, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(u32);

impl Wait {
    /// The whole seconds of a time, up to the longest wait.
    pub fn of(time: Duration) -> Self {
        Self(u32::try_from(time.as_secs()).unwrap_or(u32::MAX).min(WAIT_SECONDS_MAX))
    }

    pub fn time(self) -> Duration {
        Duration::from_secs(self.0.into())
    }
}

impl Argument for Wait {
    const LIMITS: &'static str = "0 to 86400";
    const LEFT_OUT: Option<Self> = Some(Self(0));

    fn read(text: &str) -> Option<Self> {
        number(text).filter(|seconds| *seconds <= WAIT_SECONDS_MAX).map(Self)
    }
}

/// How long a worker may be silent before its jobs are redelivered, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(u32);

impl Lease {
    /// The default: a minute.
    pub const USUAL: Self = Self(60);

    /// `None`: zero, or longer than a lease may be.
    pub fn of(seconds: u32) -> Option<Self> {
        (1..=604_800).contains(&seconds).then_some(Self(seconds))
    }

    pub fn seconds(self) -> u32 {
        self.0
    }

    pub fn time(self) -> Duration {
        Duration::from_secs(self.0.into())
    }
}

impl Argument for Lease {
    const LIMITS: &'static str = "1 to 604800";
    const LEFT_OUT: Option<Self> = Some(Self::USUAL);

    fn read(text: &str) -> Option<Self> {
        number(text).and_then(Self::of)
    }
}

/// How long a key is held, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTime(Option<u32>);

impl HoldTime {
    /// Until an operator ends the hold.
    pub const UNTIL_UNHELD: Self = Self(None);

    /// `None`: it is longer than a hold may be, which is ten years.
    pub fn of(seconds: Option<u32>) -> Option<Self> {
        seconds.is_none_or(|it| it <= 315_360_000).then_some(Self(seconds))
    }

    /// Rounded up to whole seconds: a hold is not over before its time.
    pub fn lasting(time: Duration) -> Option<Self> {
        let seconds = time.as_secs().saturating_add((time.subsec_nanos() > 0).into());
        Self::of(Some(seconds.try_into().ok()?))
    }

    pub fn seconds(self) -> Option<u32> {
        self.0
    }
}

impl Argument for HoldTime {
    const LIMITS: &'static str = "0 to 315360000, or - for no end";

    fn read(text: &str) -> Option<Self> {
        if text == "-" { Some(Self::UNTIL_UNHELD) } else { Self::of(Some(number(text)?)) }
    }
}

impl Display for HoldTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seconds) => seconds.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// Why a key is held; may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    pub fn into_text(self) -> String {
        self.0
    }
}

impl Argument for Reason {
    const TAKES_REST: bool = true;
    const LIMITS: &'static str = "one line of at most 1000 bytes";
    const LEFT_OUT: Option<Self> = Some(Self(String::new()));

    fn read(text: &str) -> Option<Self> {
        is_line(text, 0, 1_000).then(|| Self(text.to_owned()))
    }
}

/// The name of the requester: a worker, or an operator that the daemon is to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(pub(crate) Arc<str>);

impl Name {
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// The text, cut to the longest name, without characters that a name cannot have.
    pub fn resembling(text: &str) -> Self {
        let is_fit = |it: char| !(it.is_control() || it.is_whitespace());
        let mut name: String = text.chars().map(|it| if is_fit(it) { it } else { '_' }).collect();
        name.truncate(name.floor_char_boundary(NAME_MAX_BYTES));
        Self(if name.is_empty() { "nobody".into() } else { name.into() })
    }
}

impl Argument for Name {
    const LIMITS: &'static str = "one word of at most 255 bytes";

    fn read(text: &str) -> Option<Self> {
        let is_word = is_line(text, 1, NAME_MAX_BYTES) && !text.contains(' ');
        is_word.then(|| Self(text.into()))
    }
}

/// The name of a fetcher, which may have spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetcherName(Arc<str>);

impl FetcherName {
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Argument for FetcherName {
    const TAKES_REST: bool = true;
    const LIMITS: &'static str = "one line of at most 255 bytes";

    fn read(text: &str) -> Option<Self> {
        is_line(text, 1, NAME_MAX_BYTES).then(|| Self(text.into()))
    }
}

/// Which fetchers' tasks a worker takes: `fetchers=NAME,NAME`, or `fetchers=*`. In names all but letters, digits, `-`,
/// `_`, `.`, `~` and `@` is written as in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetchers {
    /// All; its jobs do not name their fetchers.
    Unsaid,
    All,
    Of(Vec<Arc<str>>),
}

/// Most fetchers that one request names.
pub const FETCHERS_MAX: usize = 100;
const FETCHERS_WORD: &str = "fetchers=";

impl Fetchers {
    /// `None`: all.
    pub fn named(self) -> Option<Vec<Arc<str>>> {
        if let Self::Of(names) = self { Some(names) } else { None }
    }
}

impl Argument for Fetchers {
    const LIMITS: &'static str = "fetchers=NAME,NAME with at most 100 names, or fetchers=*";
    const LEFT_OUT: Option<Self> = Some(Self::Unsaid);
    const IS_NAMED: bool = true;

    fn read(text: &str) -> Option<Self> {
        let names = text.strip_prefix(FETCHERS_WORD)?;
        if names == "*" {
            return Some(Self::All);
        }
        let names: Vec<_> = names.split(',').map(unescaped).collect::<Option<_>>()?;
        (names.len() <= FETCHERS_MAX).then_some(Self::Of(names))
    }
}

impl Display for Fetchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsaid => Ok(()),
            Self::All => write!(f, "{FETCHERS_WORD}*"),
            Self::Of(names) => {
                let names: Vec<String> = names.iter().map(|name| escaped(name)).collect();
                write!(f, "{FETCHERS_WORD}{}", names.join(","))
            }
        }
    }
}

/// What a worker asks for with the end of a job: `group-wait=120 group-delay=10/604800 not-before=7200 forget-group`, each
/// at most once, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asks {
    /// Nothing of the job's group starts for so long.
    pub group_wait: Option<u32>,
    /// From start to start in the group, and for how long that holds.
    pub group_delay: Option<(u32, u32)>,
    /// If the job failed, its task is tried again, but not before.
    pub not_before: Option<u32>,
    /// What workers asked for the group before is over.
    pub forget_group: bool,
}

/// The longest of these times, in seconds: a year.
pub const ASKED_SECONDS_MAX: u32 = 31_622_400;

impl Asks {
    pub const NOTHING: Self =
        Self { group_wait: None, group_delay: None, not_before: None, forget_group: false };

    /// Takes one of its words; `None`: it is none.
    #[must_use]
    pub fn with(self, word: &str) -> Option<Self> {
        let seconds = |text| number(text).filter(|it: &u32| *it <= ASKED_SECONDS_MAX);
        Some(match word.split_once('=') {
            None if word == "forget-group" => Self { forget_group: true, ..self },
            Some(("group-wait", it)) => Self { group_wait: Some(seconds(it)?), ..self },
            Some(("not-before", it)) => Self { not_before: Some(seconds(it)?), ..self },
            Some(("group-delay", it)) => {
                let (delay, lasts) = it.split_once('/')?;
                Self { group_delay: Some((seconds(delay)?, seconds(lasts)?)), ..self }
            }
            _ => return None,
        })
    }
}

impl Argument for Asks {
    const TAKES_REST: bool = true;
    const LIMITS: &'static str = "group-wait=SECONDS, group-delay=SECONDS/SECONDS, not-before=SECONDS, \
                                  forget-group; up to 31622400 each";
    const LEFT_OUT: Option<Self> = Some(Self::NOTHING);

    fn read(text: &str) -> Option<Self> {
        text.split(' ').try_fold(Self::NOTHING, Self::with)
    }
}

impl Display for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.group_wait.map(|it| format!("group-wait={it}")),
            self.group_delay.map(|(delay, lasts)| format!("group-delay={delay}/{lasts}")),
            self.not_before.map(|it| format!("not-before={it}")),
            self.forget_group.then(|| "forget-group".to_owned()),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@');

/// A fetcher's name as one word.
pub(crate) fn escaped(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

pub(crate) fn unescaped(word: &str) -> Option<Arc<str>> {
    let name = percent_decode_str(word).decode_utf8().ok()?;
    is_line(&name, 1, NAME_MAX_BYTES).then(|| name.into())
}

/// Writes what is inside.
macro_rules! displayed {
    ($($argument:ty),*) => {
        $(impl Display for $argument {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })*
    };
}

displayed!(Count, Wait, Lease, Reason, Name, FetcherName);

fn is_line(text: &str, least: usize, most: usize) -> bool {
    (least..=most).contains(&text.len()) && !text.contains(char::is_control)
}

/// A number of digits alone.
pub(crate) fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if digits { word.parse().ok() } else { None }
}
