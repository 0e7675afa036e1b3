//! The arguments of requests and their limits, defined once for all code that writes, reads or checks one. The
//! [table](super) of verbs uses them; commands and pages check with [`checked`] what a user typed. Plain values; no
//! line is read here.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

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
