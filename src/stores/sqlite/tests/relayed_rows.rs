//! Rows of lists that come by their ranges from a relay.

use shiftboss_actors::file_identity::Position;
use shiftboss_actors::store::{
    AddRows, Lane, LoseRelay, Prune, REJECTED_MAX, Reading, Registered, RelayAnswer, Relayed,
    RowBatch, RowsAnswer,
};
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::relays::{NOW, Sender, site};
use super::support::{FAIR, Site, options, run};

/// What a relay says of its place in the list, which adds nothing.
fn moved(complete: bool, reading: Reading) -> AddRows {
    let (run, rows, position) = (run("g", 1), Vec::new(), Position::default());
    AddRows(RowBatch {
        run,
        rows,
        skipped: 0,
        from: None,
        by_range: false,
        position,
        complete,
        reading,
    })
}

/// Rows of a range are added in the order of their numbers, each once, and not across a gap; the position stays.
#[test]
fn rows_of_a_range_have_no_gaps() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let mut add = |range, number, rows: &[_]| relay.send_rows(&mut site, (range, number), 1, rows);
    assert_eq!(add(3, 2, &[("bravo", "1")]), RowsAnswer::Gap);
    assert_eq!(add(3, 1, &[("alpha", "old")]), RowsAnswer::Stored);
    assert_eq!(add(3, 2, &[("alpha", "new"), ("bravo", "1")]), RowsAnswer::Stored);
    assert_eq!(
        add(3, 1, &[("alpha", "old")]),
        RowsAnswer::Stored,
        "said again, and not done again"
    );
    assert_eq!(add(15, 1, &[("charlie", "1")]), RowsAnswer::Stored, "another range");
    assert_eq!(add(3, 4, &[]), RowsAnswer::Gap);
    assert_eq!(add(3, 3, &[]), RowsAnswer::Stored, "only the number moves");
    let queued = site.rows("SELECT attr_path, payload FROM queue ORDER BY 1");
    assert_eq!(queued, ["alpha|new", "bravo|1", "charlie|1"]);
    assert_eq!(site.rows("SELECT offset FROM shiftboss_runs WHERE fetcher_id = 2"), ["-"]);
    site.check_kept();
}

/// Numbers of ranges begin anew with each epoch, under an older one nothing is added, and what is not registered takes none.
#[test]
fn rows_of_an_earlier_epoch_are_lost() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let add = |site: &mut Site, relay: &Sender, number, key, started| {
        relay.send_rows(site, (0, number), started, &[(key, "1")])
    };
    assert_eq!(add(&mut site, &relay, 1, "alpha", 1), RowsAnswer::Stored);
    let anew = Sender::join(&mut site, "r");
    assert_eq!(add(&mut site, &relay, 2, "bravo", 1), RowsAnswer::Lost);
    assert_eq!(add(&mut site, &anew, 1, "charlie", 1), RowsAnswer::Stored);
    let unknown = add(&mut site, &anew, 2, "delta", 2);
    assert!(matches!(unknown, RowsAnswer::Rejected(_)), "{unknown:?}");
    assert_eq!(add(&mut site, &anew, 3, "echo", 1), RowsAnswer::Stored, "nothing is missing");
    site.store.ask(NOW, LoseRelay { epoch: anew.epoch, is_stopped: false }).unwrap();
    assert_eq!(add(&mut site, &anew, 4, "foxtrot", 1), RowsAnswer::Lost);
    let queued = site.rows("SELECT attr_path FROM queue ORDER BY 1");
    assert_eq!(queued, ["alpha", "charlie", "echo"]);
}

/// Rows that were rejected are so when they come again, though their run is known by now. Of what may be older than all that is
/// remembered the relay is lost: it sends anew what was not answered.
#[test]
fn rejected_rows_stay_rejected() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let add = |site: &mut Site, relay: &Sender, number, started| {
        relay.send_rows(site, (0, number), started, &[("alpha", "1")])
    };
    assert_eq!(add(&mut site, &relay, 1, 1), RowsAnswer::Stored);
    let rejected = add(&mut site, &relay, 2, 2);
    assert!(matches!(rejected, RowsAnswer::Rejected(_)), "{rejected:?}");
    relay.register(&mut site, &run("g", 2));
    assert_eq!(add(&mut site, &relay, 3, 2), RowsAnswer::Stored);
    assert_eq!(add(&mut site, &relay, 2, 2), rejected);
    assert_eq!(add(&mut site, &relay, 1, 1), RowsAnswer::Stored);
    site = site.restart(&options(FAIR), false);
    assert_eq!(add(&mut site, &relay, 2, 2), rejected);
    for number in 4..=3 + i64::try_from(REJECTED_MAX).unwrap() {
        add(&mut site, &relay, number, 9);
    }
    assert_eq!(add(&mut site, &relay, 2, 2), RowsAnswer::Lost);
    assert!(matches!(add(&mut site, &relay, 4, 9), RowsAnswer::Rejected(_)));
    assert_eq!(site.rows("SELECT fetcher_run_started FROM queue ORDER BY 1"), ["1", "2"]);
}

/// Rows are read on from the position that is stored, or were stored already: nothing between is left out.
#[test]
fn rows_go_on_from_the_position() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let mut add = |from, to, reading| {
        let position = Position { offset: to, ..Position::default() };
        let AddRows(batch) = moved(false, reading);
        let batch = AddRows(RowBatch { from: Some(from), position, ..batch });
        relay.ask(&mut site, batch).is_ok()
    };
    assert!(!add(5, 10, Reading::Onward), "nothing was read so far");
    assert!(add(0, 10, Reading::Onward));
    assert!(add(0, 10, Reading::Onward), "said again");
    assert!(!add(20, 30, Reading::Onward));
    assert!(add(10, 30, Reading::Onward));
    assert!(add(0, 10, Reading::Anew));
}

/// A position is not moved behind rows that came by ranges and are not there: their answer was an older queue's.
#[test]
fn a_position_moves_behind_rows_alone() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let move_to = |site: &mut Site, relay: &mut Sender, to| {
        let (from, position) = (Some(to - 10), Position { offset: to, ..Position::default() });
        let AddRows(batch) = moved(false, Reading::Onward);
        let batch = RowBatch { from, by_range: true, position, ..batch };
        relay.ask(site, AddRows(batch)).is_ok()
    };
    assert!(!move_to(&mut site, &mut relay, 10));
    relay.send_rows(&mut site, (0, 1), 1, &[("alpha", "1")]);
    assert!(move_to(&mut site, &mut relay, 10));
    assert!(move_to(&mut site, &mut relay, 10), "said again");
    assert!(!move_to(&mut site, &mut relay, 20));
}

/// A relay that was answered what the queue has not is lost, whatever it asks; else it is heard.
#[test]
fn a_relay_ahead_of_the_queue_is_lost() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    let mut beat = |number| {
        let relayed = Relayed { epoch: relay.epoch, lane: Lane::Jobs, number, operations: vec![] };
        site.store.ask(NOW, relayed).unwrap()
    };
    let heard = RelayAnswer::Answered(vec![]);
    assert_eq!([beat(0), beat(1)], [heard.clone(), heard]);
    assert_eq!(beat(2), RelayAnswer::Lost);
}

/// Rows that the position is not behind yet may not be in the file when it is read next: the run is stale for whoever registers
/// it, and for nobody once its position has moved.
#[test]
fn rows_before_their_position_make_a_run_stale() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    let is_stale = |relay: &mut Sender, site: &mut Site| match relay.register(site, &run("g", 1)) {
        Registered::Run(stored) => stored.stale,
        answer => panic!("{answer:?}"),
    };
    assert!(!is_stale(&mut relay, &mut site));
    let add = |relay: &Sender, site: &mut Site, number| {
        let answer = relay.send_rows(site, (0, number), 1, &[("alpha", "")]);
        assert_eq!(answer, RowsAnswer::Stored);
    };
    add(&relay, &mut site, 1);
    relay.ask(&mut site, moved(true, Reading::Onward)).unwrap();
    assert!(!is_stale(&mut relay, &mut site));
    add(&relay, &mut site, 2);
    assert!(is_stale(&mut relay, &mut site));
}

/// Rows that come by ranges count as listed, as others do.
#[test]
fn a_listing_takes_rows_of_ranges() {
    let mut site = site(&[]);
    let mut relay = Sender::join(&mut site, "r");
    relay.register(&mut site, &run("g", 1));
    relay.send_rows(&mut site, (0, 1), 1, &[("alpha", ""), ("bravo", ""), ("charlie", "")]);
    relay.ask(&mut site, moved(false, Reading::Listing)).unwrap();
    relay.send_rows(&mut site, (0, 2), 1, &[("bravo", ""), ("delta", "")]);
    relay.ask(&mut site, moved(false, Reading::Onward)).unwrap();
    assert_eq!(relay.ask(&mut site, Prune { run: run("g", 1), limit: 100 }), Ok(false));
    assert_eq!(site.rows("SELECT attr_path FROM queue ORDER BY 1"), ["bravo", "delta"]);
}
