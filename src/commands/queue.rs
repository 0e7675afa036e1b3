//! `shiftboss queue`: the next keys, in the order in which they would be handed out now.

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::store::NextJobs;
use shiftboss_actors::store::answers::{Next, Queue};

use super::target;
use super::text::{ago, columns, cut, shown};
use crate::cli::ViewArguments;
use crate::exit::Failure;

/// Characters of a payload that are shown; the JSON object has it whole.
const PAYLOAD_WIDTH: usize = 60;

/// Shows the next `number` keys.
pub fn run(arguments: &ViewArguments, number: u16) -> Result<(), Failure> {
    let target = target::find(arguments.target.clone(), arguments.config.as_deref())?;
    let now = SystemClock.now();
    let found = target::ask(&target.database, NextJobs(number.into()))?;
    target::warn_if_down(&target, arguments.json);
    target::show(&target, &found, arguments.json, |found| render(found, now))
}

fn render(queue: &Queue, now: i64) -> String {
    let mut out = String::new();
    if queue.paused {
        out.push_str("Paused: nothing is handed out until `shiftboss resume`.\n");
    }
    if queue.keys.is_empty() {
        return out + "Nothing is waiting.\n";
    }
    let head = ["Key", "last run", "fetcher", "run", "payload"];
    out += &columns(head, queue.keys.iter().map(|next| row(next, now)));
    if queue.truncated {
        out.push_str("There are more: their payloads are too long to be listed at once.\n");
    }
    out
}

fn row(next: &Next, now: i64) -> [String; 5] {
    let last = next.last_started.map_or("never".to_owned(), |started| ago(now - started));
    let again = if next.again { ", lost" } else { "" };
    [
        shown(&next.key),
        format!("{last}{again}"),
        shown(&next.fetcher),
        next.run.to_string(),
        cut(&next.payload, PAYLOAD_WIDTH),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_table_is_as_documented() {
        let next = |key: &str, last_started, again, payload: &str| Next {
            key: key.to_owned(),
            fetcher: "repology".to_owned(),
            run: 1_700_000_000,
            last_started,
            again,
            payload: payload.to_owned(),
        };
        let keys = vec![
            next("alpha", None, false, "1.0 1.1"),
            next("bravo\u{1b}", Some(1_000_000), true, &"x".repeat(70)),
        ];
        let queue = Queue { paused: true, keys, truncated: true };
        let expected = "\
Paused: nothing is handed out until `shiftboss resume`.
Key          last run      fetcher   run         payload
alpha        never         repology  1700000000  1.0 1.1
bravo\\u{1b}  1m ago, lost  repology  1700000000  XXX...
There are more: their payloads are too long to be listed at once.
";
        assert_eq!(render(&queue, 1_000_060), expected.replace("XXX", &"x".repeat(57)));
    }
}
