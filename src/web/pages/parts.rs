//! What pages are made of: the frame around each, and tables. Pure.
//!
//! Texts from outside are cut, and characters in them that mislead are shown by their numbers; the templates escape what HTML
//! would take for its own.

use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::Sight;
use super::asked::Asked;
use super::assets::DIRECTORY;
use super::payload::{self, Part};
use super::sparkline::Sparkline;
use crate::lock::LockState;
use crate::text::{TEXT_WIDTH, cut, time};
use crate::view::table::{Arrangement, Attempt, Cell, Kind, Table, Tone, capitalized};
use crate::web::Page;

/// The longest address of a key's page; a key with a longer one is shown without a link.
const ADDRESS_BYTES_MAX: usize = 4_096;
/// Columns of a higher rank are left out.
const RANK_MAX: u8 = 7;

/// What is around each page.
pub(super) struct Frame {
    pub site: String,
    pub title: String,
    /// Which of the pages that each page leads to it is.
    pub here: &'static str,
    /// What keeps all of the queue from going on.
    pub banner: Option<String>,
    pub can_act: bool,
    pub is_paused: bool,
    pub at: String,
    /// Where stylesheet, script and icon are.
    pub assets: &'static str,
}

impl Frame {
    pub fn new(page: &Page, title: &str, now: i64) -> Self {
        Self {
            site: page.settings.title.clone(),
            title: title.to_owned(),
            here: "",
            banner: None,
            can_act: false,
            is_paused: false,
            at: time(now),
            assets: &DIRECTORY,
        }
    }

    /// On one of the pages that each page leads to.
    pub fn at(self, here: &'static str) -> Self {
        Self { here, ..self }
    }

    /// On a page about a queue that stands so.
    pub fn about(self, sight: &Sight<'_>) -> Self {
        let is_up = matches!(sight.snapshot.target.daemon, LockState::By(_));
        let health = sight.snapshot.health();
        let banner = health
            .banner()
            .map(|it| format!("{}: {}.", capitalized(&it.subject), cut(&it.text, TEXT_WIDTH)));
        Self {
            banner,
            can_act: is_up && sight.page.settings.token.is_some(),
            is_paused: sight.snapshot.queue.paused,
            ..self
        }
    }
}

pub(super) fn text(from_outside: &str) -> String {
    cut(from_outside, TEXT_WIDTH)
}

/// A table as the template draws it.
pub(super) struct Grid {
    pub name: &'static str,
    pub none: &'static str,
    pub head: Vec<Head>,
    pub rows: Vec<Vec<Field>>,
}

pub(super) struct Head {
    pub name: String,
    pub class: &'static str,
    /// Where the rows are sorted by it.
    pub address: Option<String>,
    /// How they are now, as `aria-sort` has it.
    pub order: Option<&'static str>,
}

pub(super) struct Field {
    /// Texts beside each other; some lead elsewhere.
    pub parts: Vec<Part>,
    pub class: &'static str,
    /// The word of an outcome, for its colour.
    pub outcome: Option<String>,
    /// What is said at length of it.
    pub title: Option<String>,
    pub line: Option<Sparkline>,
}

impl Grid {
    /// With what jobs wrote, if that is shown here.
    pub fn of(table: &Table, sight: &Sight<'_>) -> Self {
        let outputs = table.rows.iter().map(|row| output(row.attempt.as_ref(), sight));
        Self::with(table, outputs.collect(), sight.now())
    }

    pub fn plain(table: &Table) -> Self {
        Self::with(table, vec![None; table.rows.len()], 0)
    }

    fn with(table: &Table, outputs: Vec<Option<String>>, now: i64) -> Self {
        let used = table.used().into_iter();
        let used: Vec<usize> = used.filter(|at| table.columns[*at].rank <= RANK_MAX).collect();
        let has_outputs = outputs.iter().any(Option::is_some);
        let class = |at: usize| if table.columns[at].is_number { "number" } else { "" };
        let head = used.iter().map(|at| Head::new(table.columns[*at].name, class(*at)));
        let last = has_outputs.then(|| Head::new("output", ""));
        let rows = table.rows.iter().zip(outputs).map(|(row, output)| {
            let fields = used.iter().map(|at| Field::of(&row.cells[*at], class(*at), now));
            fields.chain(has_outputs.then(|| Field::output(output))).collect()
        });
        Self {
            name: table.name,
            none: table.none,
            head: head.chain(last).collect(),
            rows: rows.collect(),
        }
    }

    /// The same, whose columns lead to where the rows are sorted by them.
    pub fn sorted(table: &mut Table, asked: &Asked, path: &str, sight: &Sight<'_>) -> Self {
        let sort = asked.get("sort");
        let (column, is_reversed) = (table.column(sort), asked.get("desc") == "1");
        let text = asked.get("text").to_owned();
        table.arrange(&Arrangement { text, column, is_reversed });
        let mut grid = Self::of(table, sight);
        for head in &mut grid.head {
            let name = head.name.to_lowercase();
            if table.column(&name).is_none() {
                continue;
            }
            let is_this = sort == name;
            let desc = if is_this && !is_reversed { "1" } else { "" };
            head.address = Some(address(path, asked, &[("sort", &*name), ("desc", desc)]));
            head.order = is_this.then_some(if is_reversed { "descending" } else { "ascending" });
        }
        grid
    }
}

impl Head {
    fn new(name: &str, class: &'static str) -> Self {
        Self { name: capitalized(name), class, address: None, order: None }
    }
}

impl Field {
    fn of(cell: &Cell, class: &'static str, now: i64) -> Self {
        let text = |address| vec![Part { text: cell.text.clone(), address }];
        let field = |class, parts| Self { parts, class, outcome: None, title: None, line: None };
        match &cell.kind {
            Kind::Text if cell.tone == Tone::Bad => {
                field(if class.is_empty() { "bad" } else { "number bad" }, text(None))
            }
            Kind::Text => field(class, text(None)),
            Kind::Key(key) => field("key", text(key_address(key))),
            Kind::Fetcher(name) => field("", text(Some(fetcher_address(name)))),
            Kind::Group(name) => field("key", text(Some(group_address(name)))),
            Kind::Payload(payload) => field("payload", payload::parts(payload)),
            Kind::Time(second) => {
                let title = Some(format!("{} UTC", time(*second)));
                Self { title, ..field("time", text(None)) }
            }
            Kind::Outcome(word) => {
                Self { outcome: Some(word.clone()), ..field("result", text(None)) }
            }
            Kind::Words => field("words", text(None)),
            Kind::Days(days) => {
                Self { line: Sparkline::of(days, now), ..field("cycle", text(None)) }
            }
        }
    }

    fn output(address: Option<String>) -> Self {
        let text = if address.is_some() { "output" } else { "-" }.to_owned();
        let parts = vec![Part { text, address }];
        Self { parts, class: "", outcome: None, title: None, line: None }
    }
}

/// An address with what was asked for, but for what is given here.
pub(super) fn address(path: &str, asked: &Asked, changed: &[(&str, &str)]) -> String {
    let mut address = path.to_owned();
    let is_kept = |(name, _): &_| !changed.iter().any(|(changed, _)| changed == name);
    let kept = asked.given().filter(is_kept);
    let all = kept.chain(changed.iter().copied()).filter(|(_, value)| !value.is_empty());
    for ((name, value), sign) in all.zip(std::iter::once('?').chain(std::iter::repeat('&'))) {
        // Writing to a text does not fail.
        let _ = write!(address, "{sign}{name}={}", in_address(value));
    }
    address
}

/// Where a key's page is; a very long one has none.
pub(super) fn key_address(key: &str) -> Option<String> {
    let address = format!("key?k={}", in_address(key));
    (address.len() <= ADDRESS_BYTES_MAX).then_some(address)
}

pub(super) fn fetcher_address(name: &str) -> String {
    format!("fetcher?f={}", in_address(name))
}

/// What waits for a group.
pub(super) fn group_address(name: &str) -> String {
    format!("tasks?status=waiting&group={}", in_address(name))
}

/// Where it is asked how long a key (`k`) or a group (`g`) is to be held.
pub(super) fn hold_address(what: &str, name: &str) -> String {
    format!("hold?{what}={}", in_address(name))
}

/// Where the output of a job is shown, if there is any; of that attempt alone, if its number is known.
pub(super) fn output(attempt: Option<&Attempt>, sight: &Sight<'_>) -> Option<String> {
    let Attempt { key, started, number } = attempt?;
    let day = sight.page.settings.outputs.as_ref()?.day_of(key, *started)?;
    let attempt = number.map_or(String::new(), |number| format!("&attempt={number}"));
    let address = format!("output?k={}&day={day}{attempt}", in_address(key));
    (address.len() <= ADDRESS_BYTES_MAX).then_some(address)
}

pub(super) fn in_address(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key is one word of the address, whatever is in it; a very long one has none. What is asked for is kept.
    #[test]
    fn what_is_shown_has_addresses() {
        let of_key = key_address("a/../b?x=1&y=<é>#%2F");
        assert_eq!(
            of_key.as_deref(),
            Some("key?k=a%2F%2E%2E%2Fb%3Fx%3D1%26y%3D%3C%C3%A9%3E%23%252F")
        );
        assert!(key_address(&"k".repeat(4_000)).is_some());
        assert!(key_address(&"k".repeat(4_096)).is_none());
        let asked = Asked::read("/queue", "text=a+b&fetcher=f&n=&other=1").unwrap();
        let sorted = address("queue", &asked, &[("sort", "last run"), ("desc", "")]);
        assert_eq!(sorted, "queue?fetcher=f&text=a%20b&sort=last%20run");
    }
}
