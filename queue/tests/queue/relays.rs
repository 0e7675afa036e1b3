//! What relays own, and that each of their batches is carried out once.

use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Run};
use shiftboss_queue::documents::{INPUT, REJECTED, RELAY, RELAY_ANSWER, RELAY_LANE};
use shiftboss_queue::engine::Forgetting;
use shiftboss_queue::error::Rejected;
use shiftboss_queue::file_identity::DirectoryIdentity;
use shiftboss_queue::operation::{
    Ack, AddRelayedRows, AddRows, CompleteAttempt, CountInFlight, DeleteRuns, Dispatched, Expire,
    Heartbeat, InputDirectory, JoinRelay, JoinedRelay, Lane, Leases, LoseRelay, NoteInput,
    Operation, Outcome, Prune, REJECTED_MAX, Reading, RegisterRun, Registered, RejectFile, Relay,
    RelayAnswer, Relayed, RelayedRows, Relays, Request, RowBatch, RowsAnswer, Runs, StoredRun,
};
use shiftboss_queue::records::StoreResult;

use crate::asked::{Asked, lease, moved, row, rows, run};
use crate::words::{NOW, ready};

/// A test's relay, which numbers what it sends.
struct Sender {
    epoch: i64,
    number: i64,
}

fn join(
    queue: &mut Asked,
    (name, process): (&str, &str),
    installation: Option<Arc<str>>,
) -> StoreResult<JoinedRelay> {
    queue.ask(JoinRelay { name: name.into(), process: process.into(), installation })
}

impl Sender {
    fn join(queue: &mut Asked, name: &str) -> Self {
        Self { epoch: join(queue, (name, "p1"), None).unwrap().epoch, number: 0 }
    }

    /// The same batch as the last one.
    fn again(&self, queue: &mut Asked, operations: &[Operation]) -> RelayAnswer {
        let (epoch, number, operations) = (self.epoch, self.number, operations.to_vec());
        queue.ask(Relayed { epoch, lane: Lane::Jobs, number, operations }).unwrap()
    }

    fn send(&mut self, queue: &mut Asked, operations: &[Operation]) -> RelayAnswer {
        self.number += 1;
        self.again(queue, operations)
    }

    /// The answer to one request.
    fn ask<R: Request>(&mut self, queue: &mut Asked, request: R) -> Result<R::Answer, String> {
        let mut operations = Vec::new();
        request.push(&mut operations);
        match self.send(queue, &operations) {
            RelayAnswer::Answered(outcomes) => {
                R::answer(&mut outcomes.into_iter()).map_err(|error| error.to_string())
            }
            answer => panic!("{answer:?}"),
        }
    }

    fn lease(&mut self, queue: &mut Asked) -> Attempt {
        match self.ask(queue, lease()).unwrap() {
            Dispatched::Job(attempt, _, _) => attempt,
            answer => panic!("{answer:?}"),
        }
    }

    fn register(&mut self, queue: &mut Asked, run: Run) -> Registered {
        self.ask(queue, RegisterRun(run)).unwrap()
    }

    /// Rows of a run of the fetcher g by a range.
    fn rows(
        &self,
        queue: &mut Asked,
        (range, number): (u8, i64),
        started: i64,
        rows: &[&str],
    ) -> RowsAnswer {
        let row =
            |text: &&str| text.split_once('=').map_or(row(text, "1"), |(key, it)| row(key, it));
        let (run, rows) = (run("g", started), rows.iter().map(row).collect());
        let relayed = RelayedRows { epoch: self.epoch, range, number, run, rows };
        queue.ask(AddRelayedRows(vec![relayed])).unwrap().remove(0)
    }
}

/// A queue in which the daemon has a list of these keys, and a relay of it.
fn with_relay(keys: &[&str]) -> (Asked, Sender) {
    let mut queue = Asked::with(keys);
    let relay = Sender::join(&mut queue, "r");
    (queue, relay)
}

fn claim() -> [Operation; 1] {
    [Operation::Dispatch(lease())]
}

fn leases(queue: &mut Asked) -> Vec<Attempt> {
    queue.ask(Leases).unwrap().into_iter().map(|it| it.0).collect()
}

/// A repeated number gets the first answer, also from the next daemon and after another joining. A lower number is no
/// longer carried out, and a new process begins its numbers anew.
#[test]
fn a_batch_is_carried_out_once() {
    let (mut queue, mut relay) = with_relay(&["alpha", "bravo", "charlie"]);
    let first = relay.send(&mut queue, &claim());
    let RelayAnswer::Answered(outcomes) = &first else { panic!("{first:?}") };
    assert!(matches!(outcomes[..], [Ok(Outcome::Dispatch(Dispatched::Job(..)))]), "{first:?}");
    assert_eq!(relay.again(&mut queue, &claim()), first);
    queue = queue.restart();
    assert_eq!(relay.again(&mut queue, &claim()), first);
    relay.epoch = Sender::join(&mut queue, "r").epoch;
    assert_eq!(relay.again(&mut queue, &claim()), first);
    let second = relay.send(&mut queue, &claim());
    assert_ne!(second, first);
    relay.number -= 1;
    assert_eq!(relay.again(&mut queue, &claim()), RelayAnswer::Outdated);
    relay.number += 1;
    assert_eq!(relay.again(&mut queue, &claim()), second);
    assert_eq!(leases(&mut queue), [], "both are the relay's");
    relay.epoch = join(&mut queue, ("r", "p2"), None).unwrap().epoch;
    assert_ne!(relay.again(&mut queue, &claim()), second);
}

/// Lanes have numbers of their own: an older one of lists is not hidden by one of jobs.
#[test]
fn lanes_are_numbered_apart() {
    let (mut queue, relay) = with_relay(&["alpha"]);
    let mut ask = |lane, number| {
        let operations = vec![Operation::RegisterRun(RegisterRun(run("g", number)))];
        queue.ask(Relayed { epoch: relay.epoch, lane, number, operations }).unwrap()
    };
    let first = ask(Lane::Jobs, 5);
    assert!(matches!(first, RelayAnswer::Answered(_)));
    assert!(matches!(ask(Lane::Lists, 1), RelayAnswer::Answered(_)));
    assert_eq!(ask(Lane::Jobs, 5), first);
    assert_eq!(ask(Lane::Jobs, 4), RelayAnswer::Outdated);
}

/// A rejected operation does not affect its neighbours, within a relay's batch and beside it; a relay's operation
/// within such a batch is refused.
#[test]
fn a_rejected_operation_spoils_no_other() {
    let (mut queue, relay) = with_relay(&["alpha"]);
    let unknown = Operation::AddRows(rows("x", &["bravo"]));
    let within = |number, operations| {
        Operation::Relayed(Relayed { epoch: relay.epoch, lane: Lane::Jobs, number, operations })
    };
    let nobodys = within(9, vec![Operation::Runs(Runs)]);
    let operations = vec![unknown.clone(), nobodys, Operation::Dispatch(lease())];
    let whole = vec![unknown, within(1, operations), Operation::Dispatch(lease())];
    let outcomes = queue.apply(whole);
    let is_unknown = |outcome: &Result<Outcome, Rejected>| matches!(outcome, Err(Rejected(why)) if why.starts_with("run x.1 is not known"));
    assert!(is_unknown(&outcomes[0]), "{outcomes:?}");
    let Ok(Outcome::Relayed(RelayAnswer::Answered(inner))) = &outcomes[1] else {
        panic!("{outcomes:?}")
    };
    assert!(is_unknown(&inner[0]), "{inner:?}");
    assert_eq!(inner[1], Ok(Outcome::Relayed(RelayAnswer::Lost)));
    assert!(matches!(inner[2], Ok(Outcome::Dispatch(Dispatched::Job(..)))), "{inner:?}");
    assert_eq!(outcomes[2], Ok(Outcome::Dispatch(Dispatched::Nothing)));
}

/// Lists belong to the member that registered them first, and no other adds to them or deletes them; without its last
/// list a fetcher is free again.
#[test]
fn a_fetcher_is_one_side_s() {
    let (mut queue, mut relay) = with_relay(&["alpha"]);
    let mut other = Sender::join(&mut queue, "s");
    assert!(matches!(relay.register(&mut queue, run("g", 1)), Registered::Run(_)));
    for (asked, run, whose) in [
        (relay.register(&mut queue, run("f", 2)), "f", "the daemon's"),
        (other.register(&mut queue, run("g", 2)), "g", "the relay r's"),
        (queue.ask(RegisterRun(run("g", 2))).unwrap(), "g", "the relay r's"),
    ] {
        let right = format!(
            "the fetcher {run} is {whose}: remove its lists there, or give this one another name"
        );
        assert_eq!(asked, Registered::Elsewhere(right));
    }
    assert_eq!(relay.ask(&mut queue, rows("g", &["bravo"])), Ok(()));
    assert!(relay.ask(&mut queue, rows("f", &["bravo"])).is_err());
    assert!(queue.ask(rows("g", &["bravo"])).is_err());
    let own = |runs: Vec<StoredRun>| runs.iter().map(|it| it.run.to_string()).collect::<Vec<_>>();
    assert_eq!(own(relay.ask(&mut queue, Runs).unwrap()), ["g.1"]);
    assert!(other.ask(&mut queue, Runs).unwrap().is_empty());
    queue = queue.restart();
    assert_eq!(own(queue.ask(Runs).unwrap()), ["f.1"]);
    for (run, is_there) in [(run("g", 1), true), (run("f", 1), false)] {
        queue.ask(DeleteRuns { runs: vec![run.clone()], limit: 100 }).unwrap();
        let asked = other.register(&mut queue, run);
        assert_eq!(matches!(asked, Registered::Elsewhere(_)), is_there, "{asked:?}");
    }
}

/// Batches of an earlier process are not carried out once another has the name; its leases and lists stay with the
/// name. A relay that has used another queue is refused.
#[test]
fn a_name_is_one_process_s_in_one_queue() {
    let mut queue = Asked::with(&["alpha"]);
    let mut first = Sender::join(&mut queue, "r");
    first.register(&mut queue, run("g", 1));
    let leased = first.lease(&mut queue);
    let mut second = Sender::join(&mut queue, "r");
    assert!(second.epoch > first.epoch);
    assert_eq!(first.send(&mut queue, &[Operation::Runs(Runs)]), RelayAnswer::Lost);
    assert_eq!(second.ask(&mut queue, Leases).unwrap(), [(leased, 60)]);
    assert_eq!(second.ask(&mut queue, CountInFlight).unwrap(), 1);
    assert_eq!(second.ask(&mut queue, Runs).unwrap().len(), 1);
    let (name, process) = ("r".into(), "p1".into());
    let acting = Relay { name, process, epoch: second.epoch, beat: 0 };
    // It changes if several daemons hear the relay.
    let known = queue.ask(Relays).unwrap().into_iter();
    assert_eq!(known.map(|it| Relay { beat: 0, ..it }).collect::<Vec<_>>(), [acting]);
    let known = join(&mut queue, ("r", "p1"), None).unwrap().installation;
    assert!(join(&mut queue, ("r", "p1"), Some("another".into())).is_err());
    queue = queue.restart();
    let joined = join(&mut queue, ("r", "p1"), Some(known.clone())).unwrap();
    assert_eq!(joined.installation, known);
}

/// The jobs of a relay that is taken for dead become the daemon's; one that is done all the same still counts. An ended
/// job's lease is kept by none.
#[test]
fn a_lost_relay_s_leases_are_the_daemon_s() {
    let (mut queue, mut relay) = with_relay(&["alpha", "bravo"]);
    let (kept, ended) = (relay.lease(&mut queue), relay.lease(&mut queue));
    assert_eq!(leases(&mut queue), []);
    let done = |attempt| CompleteAttempt { attempt, exit_code: 0 };
    assert_eq!(relay.ask(&mut queue, done(ended)), Ok(Ack::Recorded));
    let lose = LoseRelay { epoch: relay.epoch, is_stopped: false };
    assert_eq!(queue.ask(lose.clone()), Ok(Some(1)));
    assert_eq!(queue.ask(lose), Ok(None));
    assert_eq!((leases(&mut queue), queue.ask(Relays)), (vec![kept], Ok(vec![])));
    assert_eq!(relay.send(&mut queue, &[Operation::Runs(Runs)]), RelayAnswer::Lost);
    assert_eq!(queue.ask(done(kept)), Ok(Ack::Recorded));
}

/// The member that last heard from a worker keeps its lease; the other one's expiry has no effect.
#[test]
fn a_lease_moves_with_its_worker() {
    let (mut queue, mut relay) = with_relay(&["alpha"]);
    let attempt = relay.lease(&mut queue);
    assert_eq!(queue.ask(Expire(attempt)), Ok(None));
    assert_eq!(queue.ask(Heartbeat(attempt)), Ok(Ack::Recorded));
    assert_eq!(leases(&mut queue), [attempt]);
    assert_eq!(relay.ask(&mut queue, Expire(attempt)), Ok(None));
    assert_eq!(relay.ask(&mut queue, Heartbeat(attempt)), Ok(Ack::Recorded));
    assert_eq!(leases(&mut queue), []);
    assert!(relay.ask(&mut queue, Expire(attempt)).unwrap().is_some());
}

/// A relay's notes are separate from the daemon's; its next process has not rejected anything yet.
#[test]
fn notes_are_apart() {
    let (mut queue, mut relay) = with_relay(&[]);
    let note = RejectFile { name: "x.txt".to_owned(), reason: "why".to_owned() };
    relay.ask(&mut queue, note).unwrap();
    relay.ask(&mut queue, NoteInput(InputDirectory::Lost("gone".to_owned()))).unwrap();
    let (queue, noted) = queue.documents(RELAY.name());
    let (name, noted) = RELAY.read(&noted[0].0, &noted[0].1).unwrap();
    let lost = noted.input.lost.unwrap();
    assert_eq!((&*name, lost.since, &*lost.reason), ("r", NOW, "gone"));
    assert_eq!(noted.rejected["x.txt"].reason, "why");
    let (queue, of_daemon) = queue.documents(REJECTED.name());
    let (mut queue, input) = queue.documents(INPUT.name());
    assert_eq!((of_daemon, input), (vec![], vec![]));
    let identity = DirectoryIdentity { device: 1, inode: 2, born: None };
    relay.ask(&mut queue, NoteInput(InputDirectory::There(identity))).unwrap();
    let joined = join(&mut queue, ("r", "p2"), None).unwrap();
    assert_eq!(joined.input_directory, Some(identity));
    let noted = queue.documents(RELAY.name()).1;
    let (_, noted) = RELAY.read(&noted[0].0, &noted[0].1).unwrap();
    assert!(noted.rejected.is_empty() && noted.input.lost.is_none());
}

/// A relay that is gone is forgotten with everything it owns, however long its lists are; one that may be alive is not.
#[test]
fn a_relay_is_forgotten() {
    let (mut queue, mut relay) = with_relay(&["alpha"]);
    relay.register(&mut queue, run("g", 1));
    let keys: Vec<String> = (0..600).map(|key| format!("key-{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    relay.rows(&mut queue, (0, 1), 1, &keys);
    let leased = relay.lease(&mut queue);
    let forget = |queue: &mut Asked| {
        ready(queue.engine.forget_member(NOW * 1_000, &RELAY.of("r").into())).unwrap()
    };
    assert_eq!(forget(&mut queue), Forgetting::Lives);
    queue.ask(LoseRelay { epoch: relay.epoch, is_stopped: false }).unwrap();
    let steps: Vec<_> = (0..4).map(|_| forget(&mut queue)).collect();
    let gone = Forgetting::Gone { lists: 1, fetchers: 1 };
    assert_eq!(steps, [Forgetting::More, Forgetting::More, gone, Forgetting::Unknown]);
    let (queue, lanes) = queue.documents(RELAY_LANE.name());
    let (mut queue, answers) = queue.documents(RELAY_ANSWER.name());
    assert_eq!((lanes, answers), (vec![], vec![]));
    assert_eq!(relay.send(&mut queue, &[Operation::Runs(Runs)]), RelayAnswer::Lost);
    let done = CompleteAttempt { attempt: leased, exit_code: 0 };
    assert_eq!(queue.ask(done), Ok(Ack::Recorded));
    assert!(queue.jobs().len() <= 1, "the daemon's");
    let asked = Sender::join(&mut queue, "s").register(&mut queue, run("g", 2));
    assert!(matches!(asked, Registered::Run(_)));
}

/// A relay that has registered a run.
fn with_a_run() -> (Asked, Sender) {
    let (mut queue, mut relay) = with_relay(&[]);
    relay.register(&mut queue, run("g", 1));
    (queue, relay)
}

/// Rows of a range are added in the order of their numbers, each once, and not across a gap; the position stays.
#[test]
fn rows_of_a_range_have_no_gaps() {
    let (mut queue, mut relay) = with_a_run();
    let mut add = |range, number, rows: &[_]| relay.rows(&mut queue, (range, number), 1, rows);
    assert_eq!(add(3, 2, &["bravo"]), RowsAnswer::Gap);
    assert_eq!(add(3, 1, &["alpha=old"]), RowsAnswer::Stored);
    assert_eq!(add(3, 2, &["alpha=new", "bravo"]), RowsAnswer::Stored);
    assert_eq!(add(3, 1, &["alpha=old"]), RowsAnswer::Stored, "said again, and not done again");
    assert_eq!(add(15, 1, &["charlie"]), RowsAnswer::Stored, "another range");
    assert_eq!(add(3, 4, &[]), RowsAnswer::Gap);
    assert_eq!(add(3, 3, &[]), RowsAnswer::Stored, "only the number moves");
    assert_eq!(relay.ask(&mut queue, Runs).unwrap()[0].position, None);
    assert_eq!(queue.jobs(), ["alpha new", "bravo 1", "charlie 1"]);
}

/// Numbers of ranges begin anew with each epoch; under an older epoch nothing is added; rows of an unregistered run
/// take no number.
#[test]
fn rows_of_an_earlier_epoch_are_lost() {
    let (mut queue, relay) = with_a_run();
    let add = |queue: &mut Asked, relay: &Sender, number, key, started| {
        relay.rows(queue, (0, number), started, &[key])
    };
    assert_eq!(add(&mut queue, &relay, 1, "alpha", 1), RowsAnswer::Stored);
    let anew = Sender::join(&mut queue, "r");
    assert_eq!(add(&mut queue, &relay, 2, "bravo", 1), RowsAnswer::Lost);
    assert_eq!(add(&mut queue, &anew, 1, "charlie", 1), RowsAnswer::Stored);
    let unknown = add(&mut queue, &anew, 2, "delta", 2);
    assert_eq!(unknown, RowsAnswer::Rejected("run g.2 is not known".to_owned()));
    assert_eq!(add(&mut queue, &anew, 3, "echo", 1), RowsAnswer::Stored, "nothing is missing");
    queue.ask(LoseRelay { epoch: anew.epoch, is_stopped: false }).unwrap();
    assert_eq!(add(&mut queue, &anew, 4, "foxtrot", 1), RowsAnswer::Lost);
    assert_eq!(queue.jobs(), ["alpha 1", "charlie 1", "echo 1"]);
}

/// Rejected rows are rejected again when they are repeated, even if their run is known by now. If a number may be older
/// than all that are remembered, the relay is lost: it sends anew what was not answered.
#[test]
fn rejected_rows_stay_rejected() {
    let (mut queue, mut relay) = with_a_run();
    let add = |queue: &mut Asked, relay: &Sender, number, started| {
        relay.rows(queue, (0, number), started, &["alpha"])
    };
    assert_eq!(add(&mut queue, &relay, 1, 1), RowsAnswer::Stored);
    let rejected = add(&mut queue, &relay, 2, 2);
    assert!(matches!(rejected, RowsAnswer::Rejected(_)), "{rejected:?}");
    relay.register(&mut queue, run("g", 2));
    assert_eq!(add(&mut queue, &relay, 3, 2), RowsAnswer::Stored);
    assert_eq!(add(&mut queue, &relay, 2, 2), rejected);
    assert_eq!(add(&mut queue, &relay, 1, 1), RowsAnswer::Stored);
    queue = queue.restart();
    assert_eq!(add(&mut queue, &relay, 2, 2), rejected);
    for number in 4..=3 + i64::try_from(REJECTED_MAX).unwrap() {
        add(&mut queue, &relay, number, 9);
    }
    assert_eq!(add(&mut queue, &relay, 2, 2), RowsAnswer::Lost);
    assert!(matches!(add(&mut queue, &relay, 4, 9), RowsAnswer::Rejected(_)));
}

/// Rows follow the stored position, or were already stored: nothing in between is left out. After rows that came by
/// ranges the position moves only if they are there: otherwise their answer came from an older state of the queue.
#[test]
fn a_position_moves_behind_its_rows() {
    let (mut queue, mut relay) = with_a_run();
    let mut add = |relay: &mut Sender, from, offset, by_range, reading| {
        let batch = RowBatch { from: Some(from), by_range, ..moved("g", offset, reading) };
        relay.ask(&mut queue, AddRows(batch)).is_ok()
    };
    assert!(!add(&mut relay, 5, 10, false, Reading::Onward), "nothing was read so far");
    assert!(add(&mut relay, 0, 10, false, Reading::Onward));
    assert!(add(&mut relay, 0, 10, false, Reading::Onward), "said again");
    assert!(!add(&mut relay, 20, 30, false, Reading::Onward));
    assert!(add(&mut relay, 10, 30, false, Reading::Onward));
    assert!(!add(&mut relay, 30, 40, true, Reading::Onward), "no rows came");
    assert!(add(&mut relay, 30, 30, true, Reading::Onward), "it is there");
    assert!(add(&mut relay, 0, 10, false, Reading::Anew));
    let (mut queue, mut relay) = with_a_run();
    relay.rows(&mut queue, (0, 1), 1, &["alpha"]);
    let mut add = |from, offset| {
        let batch = moved("g", offset, Reading::Onward);
        relay
            .ask(&mut queue, AddRows(RowBatch { from: Some(from), by_range: true, ..batch }))
            .is_ok()
    };
    assert_eq!([add(0, 10), add(0, 10), add(10, 20)], [true, true, false]);
}

/// A relay that got answers which the queue does not have is lost, whatever it asks; otherwise it is answered.
#[test]
fn a_relay_ahead_of_the_queue_is_lost() {
    let (mut queue, relay) = with_a_run();
    let mut beat = |number| {
        let (epoch, lane, operations) = (relay.epoch, Lane::Jobs, vec![]);
        queue.ask(Relayed { epoch, lane, number, operations }).unwrap()
    };
    let heard = RelayAnswer::Answered(vec![]);
    assert_eq!([beat(0), beat(1), beat(2)], [heard.clone(), heard, RelayAnswer::Lost]);
}

/// Rows beyond the stored position may not be in the file when it is next read: the run is stale when it is registered
/// again, unless its position has moved meanwhile.
#[test]
fn rows_before_their_position_make_a_run_stale() {
    let (mut queue, mut relay) = with_a_run();
    let is_stale = |queue: &mut Asked, relay: &mut Sender| match relay.register(queue, run("g", 1))
    {
        Registered::Run(stored) => stored.stale,
        answer => panic!("{answer:?}"),
    };
    assert!(!is_stale(&mut queue, &mut relay));
    relay.rows(&mut queue, (0, 1), 1, &["alpha"]);
    relay.ask(&mut queue, AddRows(moved("g", 0, Reading::Onward))).unwrap();
    assert!(!is_stale(&mut queue, &mut relay));
    relay.rows(&mut queue, (0, 2), 1, &["alpha"]);
    assert!(is_stale(&mut queue, &mut relay));
}

/// The same holds for another process of the relay.
#[test]
fn rows_before_their_position_make_a_run_stale_for_the_next_process() {
    let (mut queue, mut relay) = with_a_run();
    relay.rows(&mut queue, (0, 1), 1, &["alpha"]);
    relay.epoch = join(&mut queue, ("r", "p2"), None).unwrap().epoch;
    assert!(relay.ask(&mut queue, Runs).unwrap()[0].stale);
}

/// Rows that come by ranges count as listed, like others.
#[test]
fn a_listing_takes_rows_of_ranges() {
    let (mut queue, mut relay) = with_a_run();
    relay.rows(&mut queue, (0, 1), 1, &["alpha", "bravo", "charlie"]);
    relay.ask(&mut queue, AddRows(moved("g", 0, Reading::Listing))).unwrap();
    relay.rows(&mut queue, (0, 2), 1, &["bravo", "delta"]);
    relay.ask(&mut queue, AddRows(moved("g", 9, Reading::Onward))).unwrap();
    assert_eq!(relay.ask(&mut queue, Prune { run: run("g", 1), limit: 100 }), Ok(false));
    assert_eq!(queue.jobs(), ["bravo 1", "delta 1"]);
}
