//! What relays have, and that each batch of theirs is carried out once.

use std::sync::Arc;

use shiftboss_actors::store::{
    Ack, AddRelayedRows, AddRows, CompleteAttempt, Dispatch, Dispatched, Expire, Heartbeat,
    JoinRelay, Lane, Leases, LoseRelay, NoteInput, Operation, Outcome, RegisterRun, Registered,
    RejectFile, Rejected, Relay, RelayAnswer, Relayed, RelayedRows, Relays, Request, RowsAnswer,
    Runs,
};
use shiftboss_actors::store::{InputDirectory, Outcomes};
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};

use super::support::{FAIR, Site, batch, holder, options, run};
use crate::exit::ExitCode;
use crate::stores::Left;
use crate::stores::sqlite::forget_relay;

pub const NOW: i64 = 1_000_000;

/// A relay as a test has it: what it sends is numbered.
pub struct Sender {
    pub epoch: i64,
    number: i64,
}

impl Sender {
    pub fn join(site: &mut Site, name: &str) -> Self {
        let process = Arc::from("p1");
        let joined = site
            .store
            .ask(NOW, JoinRelay { name: name.into(), process, installation: None })
            .unwrap();
        Self { epoch: joined.epoch, number: 0 }
    }

    /// The same batch as the last one.
    fn send_again(&self, site: &mut Site, operations: &[Operation]) -> RelayAnswer {
        let operations = operations.to_vec();
        let relayed =
            Relayed { epoch: self.epoch, lane: Lane::Jobs, number: self.number, operations };
        site.store.ask(NOW, relayed).unwrap()
    }

    fn send(&mut self, site: &mut Site, operations: &[Operation]) -> RelayAnswer {
        self.number += 1;
        self.send_again(site, operations)
    }

    /// What one request is answered.
    pub fn ask<R: Request>(&mut self, site: &mut Site, request: R) -> Result<R::Answer, String> {
        let mut operations = Vec::new();
        request.push(&mut operations);
        match self.send(site, &operations) {
            RelayAnswer::Answered(outcomes) => {
                let mut outcomes: Outcomes = outcomes.into_iter();
                R::answer(&mut outcomes).map_err(|error| error.to_string())
            }
            answer => panic!("{answer:?}"),
        }
    }

    fn lease(&mut self, site: &mut Site) -> Attempt {
        match self.ask(site, dispatch()).unwrap() {
            Dispatched::Job(attempt, _) => attempt,
            answer => panic!("{answer:?}"),
        }
    }

    /// Sends rows of a run of the fetcher g by a range.
    pub fn send_rows(
        &self,
        site: &mut Site,
        (range, number): (u8, i64),
        started: i64,
        rows: &[(&str, &str)],
    ) -> RowsAnswer {
        let row = |(key, payload): &(&str, &str)| Row {
            key: Key::new(key).unwrap(),
            payload: (*payload).to_owned(),
        };
        let (run, rows) = (run("g", started), rows.iter().map(row).collect());
        let relayed = RelayedRows { epoch: self.epoch, range, number, run, rows };
        site.store.ask(NOW, AddRelayedRows(vec![relayed])).unwrap().remove(0)
    }

    pub fn register(&mut self, site: &mut Site, run: &Run) -> Registered {
        self.ask(site, RegisterRun(run.clone())).unwrap()
    }
}

fn dispatch() -> Dispatch {
    Dispatch { holder: Some(holder("w", 60)) }
}

fn leases(site: &mut Site) -> Vec<Attempt> {
    site.store.ask(NOW, Leases).unwrap().into_iter().map(|(attempt, _)| attempt).collect()
}

/// A site in which the daemon has a list of these keys.
pub fn site(keys: &[&str]) -> Site {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), keys);
    site
}

/// Said again, a number is answered as the first time, also by the next daemon; a lower one is not carried out any more.
#[test]
fn a_batch_is_carried_out_once() {
    let mut site = site(&["alpha", "bravo"]);
    let mut relay = Sender::join(&mut site, "r");
    let claim = [Operation::Dispatch(dispatch())];
    let first = relay.send(&mut site, &claim);
    let RelayAnswer::Answered(outcomes) = &first else { panic!("{first:?}") };
    assert!(matches!(outcomes[..], [Ok(Outcome::Dispatch(Dispatched::Job(..)))]), "{first:?}");
    assert_eq!(relay.send_again(&mut site, &claim), first);
    site = site.restart(&options(FAIR), false);
    assert_eq!(relay.send_again(&mut site, &claim), first);
    let second = relay.send(&mut site, &claim);
    assert_ne!(second, first);
    relay.number -= 1;
    assert_eq!(relay.send_again(&mut site, &claim), RelayAnswer::Outdated);
    relay.number += 1;
    assert_eq!(relay.send_again(&mut site, &claim), second);
    assert_eq!(leases(&mut site), [], "both are the relay's");
}

/// A process that joins anew is answered what it did not learn; another one begins its numbers anew.
#[test]
fn a_process_that_joins_anew_asks_again() {
    let mut site = site(&["alpha", "bravo"]);
    let mut relay = Sender::join(&mut site, "r");
    let claim = [Operation::Dispatch(dispatch())];
    let first = relay.send(&mut site, &claim);
    relay.epoch = Sender::join(&mut site, "r").epoch;
    assert_eq!(relay.send_again(&mut site, &claim), first);
    let (name, process) = ("r".into(), "p2".into());
    relay.epoch =
        site.store.ask(NOW, JoinRelay { name, process, installation: None }).unwrap().epoch;
    assert_ne!(relay.send_again(&mut site, &claim), first);
}

/// Lanes have numbers of their own: an older one of lists is not hidden by one of jobs.
#[test]
fn lanes_are_numbered_apart() {
    let mut site = site(&["alpha"]);
    let relay = Sender::join(&mut site, "r");
    let ask = |site: &mut Site, lane, number| {
        let operations = vec![Operation::RegisterRun(RegisterRun(run("g", number)))];
        site.store.ask(NOW, Relayed { epoch: relay.epoch, lane, number, operations }).unwrap()
    };
    let first = ask(&mut site, Lane::Jobs, 5);
    assert!(matches!(first, RelayAnswer::Answered(_)));
    assert!(matches!(ask(&mut site, Lane::Lists, 1), RelayAnswer::Answered(_)));
    assert_eq!(ask(&mut site, Lane::Jobs, 5), first);
    assert_eq!(ask(&mut site, Lane::Jobs, 4), RelayAnswer::Outdated);
}

/// An operation that is rejected leaves its neighbours alone, within a relay's batch and beside it.
#[test]
fn a_rejected_operation_spoils_no_other() {
    let mut site = site(&["alpha"]);
    let relay = Sender::join(&mut site, "r");
    let unknown = Operation::AddRows(AddRows(batch(&run("x", 1), &[("bravo", "1")], true)));
    let operations = vec![unknown.clone(), Operation::Dispatch(dispatch())];
    let relayed = Relayed { epoch: relay.epoch, lane: Lane::Jobs, number: 1, operations };
    let whole = vec![unknown, Operation::Relayed(relayed), Operation::Dispatch(dispatch())];
    let outcomes = site.store.apply_at_once(NOW, whole).unwrap();
    let is_unknown = |outcome: &Result<Outcome, Rejected>| {
        *outcome == Err(Rejected("run x.1 is not known".to_owned()))
    };
    assert!(is_unknown(&outcomes[0]), "{outcomes:?}");
    let Ok(Outcome::Relayed(RelayAnswer::Answered(inner))) = &outcomes[1] else {
        panic!("{outcomes:?}")
    };
    assert!(is_unknown(&inner[0]), "{inner:?}");
    assert!(matches!(inner[1], Ok(Outcome::Dispatch(Dispatched::Job(..)))), "{inner:?}");
    assert_eq!(outcomes[2], Ok(Outcome::Dispatch(Dispatched::Nothing)));
}

/// Lists are whoever's registered them first, and nobody else adds to them or deletes them.
#[test]
fn a_fetcher_is_one_side_s() {
    let mut site = site(&["alpha"]);
    let mut relay = Sender::join(&mut site, "r");
    let mut other = Sender::join(&mut site, "s");
    assert!(matches!(relay.register(&mut site, &run("g", 1)), Registered::Run(_)));
    for (asked, run, whose) in [
        (relay.register(&mut site, &run("f", 2)), "f", "the daemon's"),
        (other.register(&mut site, &run("g", 2)), "g", "the relay r's"),
        (site.store.ask(NOW, RegisterRun(run("g", 2))).unwrap(), "g", "the relay r's"),
    ] {
        let Registered::Elsewhere(why) = asked else { panic!("{asked:?}") };
        assert!(
            why.starts_with(&format!("the fetcher {run} is {whose}: remove its lists")),
            "{why}"
        );
    }
    let rows = |fetcher| AddRows(batch(&run(fetcher, 1), &[("bravo", "1")], true));
    assert_eq!(relay.ask(&mut site, rows("g")), Ok(()));
    assert_eq!(relay.ask(&mut site, rows("f")), Err("run f.1 is not known".to_owned()));
    assert!(site.store.ask(NOW, rows("g")).is_err());
    let own = |runs: Vec<shiftboss_actors::store::StoredRun>| {
        runs.iter().map(|stored| stored.run.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(own(site.store.ask(NOW, Runs).unwrap()), ["f.1"]);
    assert_eq!(own(relay.ask(&mut site, Runs).unwrap()), ["g.1"]);
    assert!(other.ask(&mut site, Runs).unwrap().is_empty());
    site = site.restart(&options(FAIR), false);
    assert_eq!(own(site.store.ask(NOW, Runs).unwrap()), ["f.1"]);
    // With its last list a fetcher is anybody's again.
    site.store.delete_runs(&[run("f", 1)], 100).unwrap();
    assert!(matches!(other.register(&mut site, &run("f", 3)), Registered::Run(_)));
}

/// What an earlier process sent is not carried out once another has the name; its leases and lists are the name's.
#[test]
fn a_name_is_one_process_s() {
    let mut site = site(&["alpha"]);
    let mut first = Sender::join(&mut site, "r");
    first.register(&mut site, &run("g", 1));
    let leased = first.lease(&mut site);
    let mut second = Sender::join(&mut site, "r");
    assert!(second.epoch > first.epoch);
    assert_eq!(first.send(&mut site, &[Operation::Runs(Runs)]), RelayAnswer::Lost);
    assert_eq!(second.ask(&mut site, Leases).unwrap(), [(leased, 60)]);
    assert_eq!(second.ask(&mut site, Runs).unwrap().len(), 1);
    let (name, process) = ("r".into(), "p1".into());
    let epoch = second.epoch;
    assert_eq!(site.store.ask(NOW, Relays).unwrap(), [Relay { name, process, epoch, beat: 0 }]);
}

/// A relay that has used another queue is refused.
#[test]
fn a_relay_is_one_queue_s() {
    let mut site = site(&[]);
    let join = |site: &mut Site, installation| {
        let (name, process) = ("r".into(), "p1".into());
        site.store.ask(NOW, JoinRelay { name, process, installation })
    };
    let known = join(&mut site, None).unwrap().installation;
    assert!(join(&mut site, Some("another".into())).is_err());
    site = site.restart(&options(FAIR), false);
    assert_eq!(join(&mut site, Some(known.clone())).unwrap().installation, known);
}

/// The jobs of a relay that is taken for dead are the daemon's; one that is done all the same still counts.
#[test]
fn a_lost_relay_s_leases_are_the_daemon_s() {
    let mut site = site(&["alpha", "bravo"]);
    let mut relay = Sender::join(&mut site, "r");
    let (kept, ended) = (relay.lease(&mut site), relay.lease(&mut site));
    assert_eq!(leases(&mut site), []);
    let done = CompleteAttempt { attempt: ended, exit_code: 0 };
    assert_eq!(relay.ask(&mut site, done), Ok(Ack::Recorded));
    let lose = LoseRelay { epoch: relay.epoch, is_stopped: false };
    assert_eq!(site.store.ask(NOW, lose.clone()), Ok(Some(1)));
    assert_eq!(site.store.ask(NOW, lose), Ok(None));
    assert_eq!(leases(&mut site), [kept]);
    assert_eq!(site.store.ask(NOW, Relays), Ok(vec![]));
    assert_eq!(relay.send(&mut site, &[Operation::Runs(Runs)]), RelayAnswer::Lost);
    let done = CompleteAttempt { attempt: kept, exit_code: 0 };
    assert_eq!(site.store.ask(NOW, done), Ok(Ack::Recorded));
}

/// A lease is seen to by whoever heard its worker last; the other one's end of it means nothing.
#[test]
fn a_lease_moves_with_its_worker() {
    let mut site = site(&["alpha"]);
    let mut relay = Sender::join(&mut site, "r");
    let attempt = relay.lease(&mut site);
    assert_eq!(site.store.ask(NOW, Expire(attempt)), Ok(None));
    assert_eq!(site.store.ask(NOW, Heartbeat(attempt)), Ok(Ack::Recorded));
    assert_eq!(leases(&mut site), [attempt]);
    assert_eq!(relay.ask(&mut site, Expire(attempt)), Ok(None));
    assert_eq!(relay.ask(&mut site, Heartbeat(attempt)), Ok(Ack::Recorded));
    assert_eq!(leases(&mut site), []);
    assert!(relay.ask(&mut site, Expire(attempt)).unwrap().is_some());
}

/// What a relay notes of itself is not noted of the daemon, and the other way round.
#[test]
fn notes_are_apart() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    let note = || RejectFile { name: "x.txt".to_owned(), reason: "why".to_owned() };
    relay.ask(&mut site, note()).unwrap();
    relay.ask(&mut site, NoteInput(InputDirectory::Lost("gone".to_owned()))).unwrap();
    assert!(site.rows("SELECT name FROM shiftboss_rejected_files").is_empty());
    let shown = "SELECT name, lost_since, lost_reason FROM shiftboss_relays";
    assert_eq!(site.rows(shown), ["r|1000000|gone"]);
    let identity =
        shiftboss_actors::file_identity::DirectoryIdentity { device: 1, inode: 2, born: None };
    relay.ask(&mut site, NoteInput(InputDirectory::There(identity))).unwrap();
    assert_eq!(site.rows(shown), ["r|-|-"]);
    assert!(
        site.rows("SELECT value FROM shiftboss_state WHERE name = 'input_directory'").is_empty()
    );
    let (name, process) = ("r".into(), "p2".into());
    let joined = site.store.ask(NOW, JoinRelay { name, process, installation: None }).unwrap();
    assert_eq!(joined.input_directory, Some(identity));
    assert!(site.rows("SELECT name FROM shiftboss_relay_rejected_files").is_empty());
}

/// A relay's batch is no relay's.
#[test]
fn a_batch_within_a_batch_is_nobody_s() {
    let mut site = site(&["alpha"]);
    let mut relay = Sender::join(&mut site, "r");
    let inner = Relayed {
        epoch: relay.epoch,
        lane: Lane::Jobs,
        number: 9,
        operations: vec![Operation::Runs(Runs)],
    };
    assert_eq!(relay.ask(&mut site, inner), Ok(RelayAnswer::Lost));
}

/// The status has each relay with its leased jobs, its lists and its files.
#[test]
fn the_status_has_relays() {
    let mut site = site(&["a"]);
    let mut relay = Sender::join(&mut site, "r");
    relay.lease(&mut site);
    let reject = RejectFile { name: "x.txt".to_owned(), reason: "why".to_owned() };
    relay.ask(&mut site, reject).unwrap();
    relay.ask(&mut site, RegisterRun(run("g", 1))).unwrap();
    let status = site.ask(NOW, |reader, now| reader.status(now)).unwrap().relays;
    let found = &status[0];
    assert_eq!((&*found.name, found.joined_since, found.gone), ("r", NOW, false));
    assert_eq!(
        (found.in_flight, found.rejected_files, &*found.fetchers),
        (1, 1, &["g".to_owned()][..])
    );
    site.store.ask(NOW, LoseRelay { epoch: relay.epoch, is_stopped: false }).unwrap();
    let found = &site.ask(NOW, |reader, now| reader.status(now)).unwrap().relays[0];
    assert_eq!((found.in_flight, found.gone), (0, true));
}

/// Beside the daemon a relay is forgotten that is gone, with all that it has, however long its lists are; one that may live is not.
#[test]
fn a_relay_is_forgotten() {
    let mut site = site(&["alpha"]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let keys: Vec<String> = (0..600).map(|key| format!("key-{key}")).collect();
    let rows: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    relay.send_rows(&mut site, (0, 1), 1, &rows);
    let leased = relay.lease(&mut site);
    relay.ask(&mut site, RejectFile { name: "x".into(), reason: "y".into() }).unwrap();
    let refused = forget_relay(&site.path(), "r").unwrap_err();
    assert_eq!(refused.code(), ExitCode::AlreadyRunning);
    site.store.ask(NOW, LoseRelay { epoch: relay.epoch, is_stopped: false }).unwrap();
    let left = forget_relay(&site.path(), "r").unwrap();
    assert_eq!(left, Left { lists: 1, fetchers: 1, jobs: 0 });
    assert_eq!(forget_relay(&site.path(), "r").unwrap_err().code(), ExitCode::BadData);
    assert_eq!(site.rows("SELECT attr_path FROM queue"), ["alpha"]);
    for table in ["shiftboss_relays", "shiftboss_relay_fetchers", "shiftboss_relay_lanes"] {
        assert_eq!(site.rows(&format!("SELECT count(*) FROM {table}")), ["0"], "{table}");
    }
    assert_eq!(relay.send(&mut site, &[Operation::Runs(Runs)]), RelayAnswer::Lost);
    let done = CompleteAttempt { attempt: leased, exit_code: 0 };
    assert_eq!(site.store.ask(NOW, done), Ok(Ack::Recorded));
    assert!(matches!(
        Sender::join(&mut site, "s").register(&mut site, &run("g", 2)),
        Registered::Run(_)
    ));
    site.check_kept();
}
