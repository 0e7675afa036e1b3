//! Groups: what keys have in common, like the host that they are on, and the limits that hold for each: how many jobs at
//! a time, how long between them, how many in an hour. One table of the configuration, one kind of group.
//!
//! Read from the configuration file by the program, applied by [rules](crate::rules::groups). Nothing here knows a store
//! or which keys wait. Limits count in *steady* time: wall-clock time less all by which the clock was set.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use shiftboss_protocol::fetcher_file::checksum;

use crate::record::Millis;

/// Longest name of a group, in bytes; a longer one is cut, and ends in its checksum.
pub const NAME_MAX_BYTES: usize = 255;
/// Longest name of a table, in bytes: what a group's keys have in common has the rest of its name.
pub const TABLE_NAME_MAX_BYTES: usize = 64;
/// Most tables of groups, and most exceptions in one.
pub const TABLES_MAX: usize = 100;
pub const EXCEPTIONS_MAX: usize = 10_000;
/// Most jobs of a group at a time, the longest delay, and the most starts in a window.
pub const IN_FLIGHT_MAX: u32 = 1_000;
pub const DELAY_MAX: Millis = 7 * 86_400_000;
pub const RATE_MAX: u32 = 1_000_000;
/// The last word of a task's line that can be its group.
pub const WORD_MAX: usize = 1_000;
/// The longest window of a rate, and the largest factor of a rest.
pub const WINDOW_MAX: Millis = 31 * 86_400_000;
pub const REST_FACTOR_MAX: f64 = 1_000.0;
/// The longest rest, if the configuration does not say: an hour.
pub const REST_MAX: Millis = 3_600_000;
/// The longest pause or delay that a worker may ask for, if the configuration does not say: a day.
pub const ASKED_MAX: Millis = 86_400_000;
/// The largest compiled form of a regular expression, in bytes.
const REGEX_MAX_BYTES: usize = 1 << 20;

/// A group, by a number that follows from its name: whoever puts a row into the queue looks nothing up. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub i64);

impl GroupId {
    pub fn of(name: &str) -> Self {
        Self(i64::try_from(checksum(name.as_bytes()) >> 1).unwrap_or(1).max(1))
    }
}

/// What decides to which group a task belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The host of the key, if that is a URL, else of the first URL in the payload.
    Host,
    /// The key's text before this.
    Prefix(String),
    /// What an expression's first pair of brackets finds in the key, or the whole expression.
    Regex(String),
    /// A word of the task's line, from 1 on: the first one is the key.
    Word(usize),
    /// What stands behind this at the beginning of a word of the payload.
    Field(String),
}

/// At most so many starts in any window of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub starts: u32,
    pub window: Millis,
}

/// A group's rest after a job: its duration times this, within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    pub factor: f64,
    pub min: Millis,
    pub max: Millis,
}

impl Rest {
    pub fn after(self, took: Millis) -> Millis {
        // A product beyond the range of numbers is the longest rest.
        ((took as f64 * self.factor) as Millis).clamp(self.min, self.max.max(self.min))
    }
}

/// What a group may do; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub max_in_flight: Option<u32>,
    /// From start to start.
    pub delay: Option<Millis>,
    pub rest: Option<Rest>,
    pub rate: Option<Rate>,
    /// The longest pause or delay that workers may ask for; `None`: [`ASKED_MAX`].
    pub asked_max: Option<Millis>,
}

impl Limits {
    /// The longest time that a worker may ask for, in seconds.
    pub fn asked_seconds(&self) -> u32 {
        let seconds = self.asked_max.unwrap_or(ASKED_MAX).div_euclid(1_000);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}

/// One table: a kind of group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub name: String,
    pub by: By,
    /// An expression that finds the keys that it is for; `None`: all.
    pub keys: Option<String>,
    pub limits: Limits,
    /// Other limits for some groups: a pattern with `*` for each, of which the first one that matches counts.
    pub exceptions: Vec<(String, Limits)>,
}

/// The name of a group: that of its table, a colon, and what its keys have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub id: GroupId,
    pub name: Arc<str>,
}

#[derive(Debug, Clone)]
struct Compiled {
    table: Table,
    keys: Option<Regex>,
    by: Option<Regex>,
    /// Which exceptions are for one group by its name, and which ones have a `*`: a table may have thousands of the first.
    named: HashMap<String, usize>,
    patterns: Vec<usize>,
}

/// The tables of a configuration; of those whose keys match, the first one decides.
#[derive(Debug, Clone, Default)]
pub struct GroupRules {
    tables: Vec<Compiled>,
}

impl PartialEq for GroupRules {
    fn eq(&self, other: &Self) -> bool {
        self.tables().eq(other.tables())
    }
}

/// No number of a configuration is NaN.
impl Eq for GroupRules {}

impl Serialize for GroupRules {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.tables())
    }
}

impl<'de> Deserialize<'de> for GroupRules {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl GroupRules {
    /// # Errors
    /// An expression is none, or is too large: which one, and why.
    pub fn new(tables: Vec<Table>) -> Result<Self, String> {
        let tables = tables.into_iter().map(Compiled::new).collect::<Result<_, _>>()?;
        Ok(Self { tables })
    }

    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().map(|it| &it.table)
    }

    /// Whether the groups of tasks are other ones than by `other`: only limits differ else.
    pub fn sorts_like(&self, other: &Self) -> bool {
        let sorts = |it: &Self| -> Vec<_> {
            it.tables().map(|it| (it.name.clone(), it.by.clone(), it.keys.clone())).collect()
        };
        sorts(self) == sorts(other)
    }

    /// The group of a task.
    pub fn of(&self, key: &str, payload: &str) -> Option<Named> {
        let is_meant = |it: &&Compiled| it.keys.as_ref().is_none_or(|keys| keys.is_match(key));
        let it = self.tables.iter().find(is_meant)?;
        let value = it.value(key, payload).filter(|value| !value.is_empty())?;
        let name = shortened(format!("{}:{value}", it.table.name));
        Some(Named { id: GroupId::of(&name), name: name.into() })
    }

    /// Whether a group of this name may have tasks.
    pub fn has(&self, name: &str) -> bool {
        let table = name.split_once(':').map(|(table, _)| table);
        self.tables.iter().any(|it| Some(&*it.table.name) == table)
    }

    /// The limits of a group; none if no table has its name any more.
    pub fn limits(&self, name: &str) -> Limits {
        let Some((table, value)) = name.split_once(':') else { return Limits::default() };
        let Some(it) = self.tables.iter().find(|it| it.table.name == table) else {
            return Limits::default();
        };
        it.exception(value).unwrap_or(it.table.limits)
    }
}

impl Compiled {
    fn new(table: Table) -> Result<Self, String> {
        let keys = table.keys.as_deref().map(regex).transpose()?;
        let by = match &table.by {
            By::Regex(text) => Some(regex(text)?),
            _ => None,
        };
        let (mut named, mut patterns) = (HashMap::new(), Vec::new());
        for (at, (pattern, _)) in table.exceptions.iter().enumerate() {
            if pattern.contains('*') {
                patterns.push(at);
            } else {
                named.entry(pattern.clone()).or_insert(at);
            }
        }
        Ok(Self { table, keys, by, named, patterns })
    }

    /// The limits of the first exception that is for this group.
    fn exception(&self, value: &str) -> Option<Limits> {
        let exceptions = &self.table.exceptions;
        let named = self.named.get(value).copied();
        let before = self.patterns.iter().take_while(|at| named.is_none_or(|named| **at < named));
        let first = before.copied().find(|at| matches(&exceptions[*at].0, value)).or(named)?;
        Some(exceptions[first].1)
    }

    fn value(&self, key: &str, payload: &str) -> Option<String> {
        let word = |text: &str| text.to_owned();
        match &self.table.by {
            By::Host => host(key).or_else(|| first_url(payload).and_then(host)),
            By::Prefix(end) => key.split_once(end.as_str()).map(|(prefix, _)| word(prefix)),
            By::Regex(_) => {
                let found = self.by.as_ref()?.captures(key)?;
                found.get(1).or_else(|| found.get(0)).map(|it| word(it.as_str()))
            }
            By::Word(1) => Some(word(key)),
            By::Word(number) => {
                payload.split_ascii_whitespace().nth(number.saturating_sub(2)).map(word)
            }
            By::Field(field) => {
                let mut words = payload.split_ascii_whitespace();
                words.find_map(|it| it.strip_prefix(field.as_str())).map(word)
            }
        }
    }
}

/// Whether a text is that pattern, in which each `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    let found = |text: &'_ str, part: &str| text.find(part).map(|at| at + part.len());
    let mut left = inner;
    for part in middle.split('*') {
        left = left.and_then(|text| text.get(found(text, part)?..));
    }
    left.is_some()
}

/// Its matching takes time in proportion to the text.
///
/// # Errors
/// Why it is none, or that it is too large.
pub fn regex(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(REGEX_MAX_BYTES).build();
    built.map_err(|error| format!("{text:?} is no regular expression: {error}"))
}

/// The host of a URL: in lower case, IDNs in their ASCII form, without port, user or final dot.
fn host(text: &str) -> Option<String> {
    if !text.contains("://") {
        return None;
    }
    let url = url::Url::parse(text).ok()?;
    // Only of some schemes that crate knows that a host is to be in lower case.
    let host = url.host_str()?.trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty()).then_some(host)
}

fn first_url(text: &str) -> Option<&str> {
    let at = text.find("://")?;
    let scheme = text[..at].rfind(|it: char| !it.is_ascii_alphanumeric() && !"+-.".contains(it));
    let begin = scheme.map_or(0, |it| it + text[it..].chars().next().map_or(1, char::len_utf8));
    let rest = &text[begin..];
    let ends = |it: char| it.is_whitespace() || "\"'<>".contains(it);
    Some(&rest[..rest.find(ends).unwrap_or(rest.len())])
}

fn shortened(name: String) -> String {
    if name.len() <= NAME_MAX_BYTES {
        return name;
    }
    let sum = format!("~{:016x}", checksum(name.as_bytes()));
    let mut end = NAME_MAX_BYTES - sum.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{sum}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(by: By) -> Table {
        let (keys, limits, exceptions) = (None, Limits::default(), Vec::new());
        Table { name: "g".to_owned(), by, keys, limits, exceptions }
    }

    #[track_caller]
    fn sorts(by: By, tasks: &[(&str, &str, &str)]) {
        let grouping = GroupRules::new(vec![table(by)]).unwrap();
        for (key, payload, right) in tasks {
            let found = grouping.of(key, payload);
            let found = found.as_ref().map_or("", |it| it.name.strip_prefix("g:").unwrap());
            assert_eq!(found, *right, "{key} {payload}");
        }
    }

    #[test]
    fn hosts() {
        sorts(
            By::Host,
            &[
                ("https://Example.ORG:8443/a", "", "example.org"),
                ("https://user:word@example.org./a", "https://other.org", "example.org"),
                ("http://bücher.example/", "", "xn--bcher-kva.example"),
                ("http://[2001:db8::1]:80/", "", "[2001:db8::1]"),
                ("ftp://EXAMPLE.org/x", "", "example.org"),
                ("page 7", "see <https://a.org/x>, https://b.org", "a.org"),
                ("a", "\"é\"https://a.org", "a.org"),
                ("a", "://", ""),
                ("https://", "", ""),
                ("a", "b", ""),
            ],
        );
    }

    #[test]
    fn other_parts_of_tasks() {
        sorts(By::Prefix("/".into()), &[("a/b/c", "", "a"), ("a", "", ""), ("/a", "", "")]);
        sorts(By::Regex(r"^(\w+)\.".into()), &[("py.a", "", "py"), ("a", "", "")]);
        sorts(By::Regex(r"^\d".into()), &[("7a", "", "7")]);
        sorts(By::Word(1), &[("a", "b c", "a")]);
        sorts(By::Word(2), &[("a", "b c", "b"), ("a", "", "")]);
        sorts(By::Field("host=".into()), &[("a", "x=1 host=h y", "h"), ("a", "x", "")]);
    }

    #[test]
    fn the_first_table_that_matches_decides() {
        let one = Table { keys: Some("^a".into()), name: "one".into(), ..table(By::Word(2)) };
        let other = Table { name: "other".into(), ..table(By::Word(1)) };
        let grouping = GroupRules::new(vec![one, other]).unwrap();
        let name = |key, payload| grouping.of(key, payload).map(|it| it.name.to_string());
        assert_eq!(name("a", "x").as_deref(), Some("one:x"));
        assert_eq!(name("a", ""), None);
        assert_eq!(name("b", "x").as_deref(), Some("other:b"));
    }

    #[test]
    fn some_groups_have_other_limits() {
        let limits = |most| Limits { max_in_flight: Some(most), ..Limits::default() };
        let patterns = ["a.org", "*.example.org", "b.example.org", "*.net", "b.net", "c.org"];
        let exceptions = patterns.map(str::to_owned).into_iter().zip((2..).map(limits)).collect();
        let table = Table { limits: limits(1), exceptions, ..table(By::Host) };
        let grouping = GroupRules::new(vec![table]).unwrap();
        for (name, right) in [
            ("g:a.org", Some(2)),
            ("g:c.org", Some(7)),
            ("g:a.example.org", Some(3)),
            ("g:b.example.org", Some(3)),
            ("g:b.net", Some(5)),
            ("g:axexample.org", Some(1)),
            ("other:a.org", None),
            ("g", None),
        ] {
            assert_eq!(grouping.limits(name).max_in_flight, right, "{name}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, is_right) in [
            ("a.org", "a.org", true),
            ("a.org", "b.a.org", false),
            ("*", "", true),
            ("*.org", "a.org", true),
            ("*.org", "a.orgs", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "axbxbyc", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("*é*", "xéy", true),
        ] {
            assert_eq!(matches(pattern, text), is_right, "{pattern} {text}");
        }
    }

    #[test]
    fn names_are_bounded() {
        let long = format!("g:{}", "é".repeat(300));
        let short = shortened(long.clone());
        assert!(short.len() <= NAME_MAX_BYTES && short != shortened(format!("{long}x")));
        assert!(regex("(a{1000}){1000}").is_err());
    }
}
