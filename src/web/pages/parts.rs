//! What pages are made of: the frame around each, links to keys, times, rows of attempts. Pure.
//!
//! Texts from outside are cut, and characters in them that mislead are shown by their numbers; the templates escape what HTML
//! would take for its own.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use shiftboss_queue::answers::{Ended, QueueStatus};

use super::Sight;
use super::assets::{ICON, SCRIPT, STYLE};
use crate::lock::LockState;
use crate::stores::outcome_words::in_words;
use crate::target::Target;
use crate::text::{TEXT_WIDTH, ago, cut, time, took};
use crate::up::Up;
use crate::web::Page;

/// The longest address of a key's page; a key with a longer one is shown without a link.
const ADDRESS_BYTES_MAX: usize = 4_096;

/// What is around each page.
pub(super) struct Frame {
    /// What the pages are called.
    pub site: String,
    pub title: String,
    /// Which of the pages that each page leads to it is.
    pub here: &'static str,
    /// What is wrong with all of it.
    pub banner: Option<String>,
    /// Something can be changed here.
    pub can_act: bool,
    pub is_paused: bool,
    /// When it was made.
    pub at: String,
    pub style: &'static str,
    pub script: &'static str,
    pub icon: &'static str,
}

impl Frame {
    pub fn new(page: &Page, title: &str, now: i64) -> Self {
        Self {
            site: page.title.clone(),
            title: title.to_owned(),
            here: "",
            banner: None,
            can_act: false,
            is_paused: false,
            at: time(now),
            // Relative, so that a reverse proxy may put the page below any path.
            style: &STYLE.address,
            script: &SCRIPT.address,
            icon: &ICON.address,
        }
    }

    /// On one of the pages that each page leads to.
    pub fn at(self, here: &'static str) -> Self {
        Self { here, ..self }
    }

    /// On a page about a queue that stands so.
    pub fn about(self, page: &Page, target: &Target, status: &QueueStatus) -> Self {
        let is_up = matches!(target.daemon, LockState::By(_));
        Self {
            banner: banner(target, status),
            can_act: is_up && page.token.is_some(),
            is_paused: status.paused,
            ..self
        }
    }
}

/// What keeps all of the queue from going on.
fn banner(target: &Target, status: &QueueStatus) -> Option<String> {
    if let Some(place) = &status.moved_to {
        return Some(format!("This queue was moved to {}.", text(place)));
    }
    if Up::of(target, status) == Up::Down {
        return Some("No daemon runs: nothing is handed out.".to_owned());
    }
    if let Some(reason) = &status.directory_lost_reason {
        return Some(format!("The input directory is lost: {}.", text(reason)));
    }
    status.paused.then(|| "Paused: nothing is handed out until shiftboss resume.".to_owned())
}

/// A text from outside.
pub(super) fn text(from_outside: &str) -> String {
    cut(from_outside, TEXT_WIDTH)
}

/// A key, and where its page is.
pub(super) struct KeyLink {
    pub text: String,
    pub address: Option<String>,
}

impl KeyLink {
    pub fn to(key: &str) -> Self {
        let address = format!("key?k={}", in_address(key));
        let is_short = address.len() <= ADDRESS_BYTES_MAX;
        Self { text: text(key), address: is_short.then_some(address) }
    }
}

/// A time, as people say it and in full.
pub(super) struct Moment {
    pub ago: String,
    pub full: String,
}

impl Moment {
    pub fn new(second: i64, now: i64) -> Self {
        Self { ago: ago(now.saturating_sub(second)), full: format!("{} UTC", time(second)) }
    }
}

/// An attempt that ended.
pub(super) struct Attempt {
    pub number: i64,
    pub key: KeyLink,
    /// The outcome's word, for its colour, and in full.
    pub outcome: String,
    pub words: String,
    pub ended: Moment,
    pub took: String,
    pub worker: String,
    pub fetcher: String,
    /// Where its output is shown, if there is one.
    pub output: Option<String>,
}

impl Attempt {
    pub fn of(ended: &Ended, sight: &Sight<'_>) -> Self {
        let now = sight.now;
        let name = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), text);
        Self {
            output: output(&ended.key, ended.started, Some(ended.attempt), sight),
            number: ended.attempt,
            key: KeyLink::to(&ended.key),
            outcome: ended.outcome.clone(),
            words: in_words(&ended.outcome, ended.exit_code),
            ended: Moment::new(ended.finished, now),
            took: took(ended.took_ms, ended.duration_seconds),
            worker: name(&ended.worker),
            fetcher: name(&ended.fetcher),
        }
    }
}

/// Where the output of a key's job that began then is shown, if there is any; of that attempt alone, if its number is known.
pub(super) fn output(
    key: &str,
    started: i64,
    attempt: Option<i64>,
    sight: &Sight<'_>,
) -> Option<String> {
    let day = sight.page.outputs.as_ref()?.day_of(key, started)?;
    let attempt = attempt.map_or(String::new(), |attempt| format!("&attempt={attempt}"));
    let address = format!("output?k={}&day={day}{attempt}", in_address(key));
    (address.len() <= ADDRESS_BYTES_MAX).then_some(address)
}

/// A text as a value in an address.
pub(super) fn in_address(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key is one word of the address, whatever is in it; a very long one has none.
    #[test]
    fn keys_have_addresses() {
        let link = KeyLink::to("a/../b?x=1&y=<é>#%2F");
        assert_eq!(
            link.address.as_deref(),
            Some("key?k=a%2F%2E%2E%2Fb%3Fx%3D1%26y%3D%3C%C3%A9%3E%23%252F")
        );
        assert!(KeyLink::to(&"k".repeat(4_000)).address.is_some());
        let long = KeyLink::to(&"k".repeat(4_096));
        assert!(long.address.is_none() && long.text.len() == TEXT_WIDTH, "{}", long.text);
        assert_eq!(KeyLink::to("a\u{202e}b").text, "a\\u{202e}b");
    }
}
