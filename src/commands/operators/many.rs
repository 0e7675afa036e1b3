//! An order to many keys: those of a selection (`--prefix`, `--fetcher`, `--failed`), or of a file. It says how many they
//! are and asks before it goes on; then each key is a request of its own, as if it were named.
//!
//! A selection is a snapshot: what it finds in the database, a bounded number of keys at a time, first to count them,
//! then to send them. A key that does not need the order any more when its turn comes is left as it is.

mod order;
mod source;

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde_json::json;
use shiftboss_protocol::verbs::Name;
use shiftboss_queue::reader::Order;

use super::print;
use crate::cli::{DaemonArguments, ManyKeys};
use crate::client::{BATCH_BYTES, Session};
use crate::exit::{ExitCode, Failure};
use crate::text::{counted, shown};
pub(super) use order::{Again, Each};
use order::{Done, done, infinitive};
pub(super) use source::Meant;
use source::Source;

/// Most requests that are sent before their answers are read, within [`BATCH_BYTES`].
const BATCH: usize = 200;
/// After so many refusals the daemon closes a connection.
const REFUSALS_MAX: usize = 10;
/// How many keys `--dry-run` names.
const FIRST_MAX: usize = 10;

/// Gives the order to all that are meant; `by`: in whose name.
pub(super) fn give<V: Each>(
    of: &ManyKeys,
    order: Order,
    by: Option<Name>,
    request: impl Fn(Meant) -> V,
) -> Result<(), Failure> {
    let socket = of.daemon.target.socket(&V::NAME.to_lowercase())?;
    let source = Source::of(of, order)?;
    if !of.yes && !may_go_on(of, order, &source)? {
        return Ok(());
    }
    let mut sender = Sender { socket: &socket, by, daemon: &of.daemon, done: Done::default() };
    let mut held = 0;
    let sent = source.each_step(true, &mut |step, left_alone| {
        held += left_alone;
        sender.send(step.into_iter().map(&request).collect())
    });
    let Done { keys, tasks, refused, .. } = sender.done;
    let faulty = sent.map_err(|failure| match keys {
        0 => failure,
        _ => Failure::new(failure.code(), format!("{failure}. {}", done(order, keys, tasks))),
    })?;
    print(if of.daemon.json {
        json!({"keys": keys, "tasks": tasks, "held": held, "refused": refused}).to_string() + "\n"
    } else {
        format!("{}{}\n", done(order, keys, tasks), left_alone(held))
    })?;
    match (refused, faulty) {
        (0, 0) => Ok(()),
        (0, lines) => Err(bad(format!("{} no key; see above", are(lines, "line")))),
        (keys, _) => Err(bad(format!("{} refused; see above", are(keys, "key")))),
    }
}

fn bad(text: String) -> Failure {
    Failure::new(ExitCode::BadData, text)
}

fn are(count: u64, what: &str) -> String {
    format!("{} {}", counted(count, what), if count == 1 { "was" } else { "were" })
}

/// What was found that may not be changed now.
fn left_alone(held: u64) -> String {
    match held {
        0 => String::new(),
        held => format!(" Left alone: {}.", counted(held, "held key")),
    }
}

/// Counts what is meant, and asks; only says it for a dry run. A single key needs no question.
fn may_go_on(of: &ManyKeys, order: Order, source: &Source) -> Result<bool, Failure> {
    if source.is_spent_by_counting() && !of.dry_run {
        let text = "the keys come from standard input, so nobody can be asked: say --yes, or look first with --dry-run";
        return Err(Failure::usage(text));
    }
    let (mut count, mut held, mut first) = (0, 0, Vec::new());
    source.each_step(of.dry_run, &mut |step, left_alone| {
        count += step.len() as u64;
        held += left_alone;
        let more = FIRST_MAX.saturating_sub(first.len());
        first.extend(step.into_iter().take(more).map(|(key, _)| key));
        Ok(())
    })?;
    let what = infinitive(order, count);
    if of.dry_run {
        print(if of.daemon.json {
            json!({"keys": count, "held": held, "first": first}).to_string() + "\n"
        } else {
            let first: String =
                first.iter().map(|key| format!("  {}\n", shown(key.as_str()))).collect();
            let more = if count > FIRST_MAX as u64 { "  ...\n" } else { "" };
            format!("This would {what}.{}\n{first}{more}", left_alone(held))
        })?;
        return Ok(false);
    }
    if count <= 1 {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "this would {what}: say so with --yes, or look first with --dry-run"
        )));
    }
    let _ = write!(io::stderr(), "This will {what}.{} Go on? [y/N] ", left_alone(held));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    let goes_on = read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    if !goes_on {
        print("Nothing was changed.\n")?;
    }
    Ok(goes_on)
}

/// Requests on their way, and what came of those that are answered.
struct Sender<'a> {
    socket: &'a Path,
    by: Option<Name>,
    daemon: &'a DaemonArguments,
    done: Done,
}

impl Sender<'_> {
    /// Requests that a daemon did not answer after too many refusals are repeated on another connection, and so are
    /// those of which more is left.
    fn send<V: Each>(&mut self, mut requests: Vec<V>) -> Result<(), Failure> {
        while !requests.is_empty() {
            let mut sent: Vec<V> = requests.drain(..batch(&requests)).collect();
            let timeout = self.daemon.timeout();
            let mut session = match &self.by {
                Some(by) => Session::begin_as(self.socket, by.clone(), &sent, timeout)?,
                None => Session::begin(self.socket, &sent, timeout)?,
            };
            let (mut answered, mut refused, mut left) = (0, 0, Vec::new());
            while answered < sent.len() && refused < REFUSALS_MAX {
                let request = &sent[answered];
                let key = request.key();
                match session.answer::<V>() {
                    Ok(answer) => {
                        let did = V::did(&answer.object);
                        left.extend(did.has_more.then(|| request.clone()));
                        self.done.add(key, did);
                    }
                    Err(failure) if failure.code() == ExitCode::BadData => {
                        refused += 1;
                        self.done.refuse(key, &failure.to_string());
                    }
                    Err(failure) => {
                        let text = format!("{}: {failure}", shown(key.as_str()));
                        return Err(Failure::new(failure.code(), text));
                    }
                }
                answered += 1;
            }
            left.extend(sent.drain(answered..));
            requests.splice(..0, left);
        }
        Ok(())
    }
}

/// How many of these go into the next batch.
fn batch<V: Each>(requests: &[V]) -> usize {
    let sums = requests.iter().scan(0, |sum, request| {
        *sum += request.key().as_str().len();
        Some(*sum)
    });
    let count = sums.take(BATCH).take_while(|sum| *sum <= BATCH_BYTES).count();
    count.max(1).min(requests.len())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use shiftboss_protocol::model::Key;

    use super::*;

    /// So few long keys are sent at once that neither side waits for the other's answers to be read.
    #[test]
    fn long_keys_go_in_small_batches() {
        let again = |length| Again(Key::stored(&"k".repeat(length)), None);
        for (length, expected) in [(1, 200), (4_096, 8), (BATCH_BYTES, 1)] {
            assert_eq!(batch(&vec![again(length); 300]), expected);
        }
        assert_eq!(batch(&[again(1)]), 1);
    }

    /// A daemon closes a connection after ten refusals. Unanswered requests are repeated on the next one.
    #[test]
    fn many_keys_that_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let peer = thread::spawn(move || {
            let mut gone = 12;
            for connection in listener.incoming().take(2) {
                let mut connection = connection.unwrap();
                let mut refused = 0;
                for line in BufReader::new(connection.try_clone().unwrap()).lines() {
                    let answer = match line.unwrap().starts_with("HELLO ") {
                        true => "HELLO 2",
                        false if gone > 0 => {
                            (gone, refused) = (gone - 1, refused + 1);
                            "ERROR unknown gone"
                        }
                        false => r#"{"key":"k","rows":1}"#,
                    };
                    writeln!(connection, "{answer}").unwrap();
                    if refused == 10 {
                        break;
                    }
                }
            }
        });
        let again = |n| Again(Key::stored(&format!("key{n}")), None);
        let target = crate::target::Asked::default();
        let daemon = &DaemonArguments { timeout: None, target, json: false };
        let mut sender = Sender { socket: &socket, by: None, daemon, done: Done::default() };
        sender.send((0..15).map(again).collect()).unwrap();
        peer.join().unwrap();
        let Done { keys, tasks, refused, .. } = sender.done;
        assert_eq!((keys, tasks, refused), (3, 3, 12));
    }
}
