//! Protocol 2, line by line (docs/protocol.md).

use std::time::Duration;

use bytes::BytesMut;

use super::*;
use crate::model::{Attempt, Idle, Key};
use crate::task_line::single_task;
use crate::verbs::{HoldTime, Wait};
use crate::wire::answers::{Answer, Job};
use crate::wire::{LINE_MAX_BYTES, Line, LineCodec};

/// The lines of a connection that may opt in, sent `pieces`, and half-closed; and whether a fault of the
/// classic kind ended it.
///
/// Steps are taken apart into their lines: how the bytes came decides what is joined.
fn lines(pieces: &[&[u8]]) -> (Vec<Line>, bool) {
    let (joined, fault) = as_they_came(pieces);
    let apart = joined.into_iter().flat_map(|line| match line {
        Line::Session(Ok(Step::DoneReady(done, ready))) => vec![one(done), one(ready)],
        Line::Session(Ok(Step::Adds(adds))) => adds.into_iter().map(one).collect(),
        line => vec![line],
    });
    (apart.collect(), fault)
}

fn one(request: impl Into<Request>) -> Line {
    Line::Session(Ok(Step::from(request.into())))
}

fn as_they_came(pieces: &[&[u8]]) -> (Vec<Line>, bool) {
    let (mut codec, mut bytes, mut lines) =
        (LineCodec::new(true, true), BytesMut::new(), Vec::new());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match codec.decode(&mut bytes) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(_) => return (lines, true),
            }
        }
    }
    loop {
        match codec.decode_eof(&mut bytes) {
            Ok(Some(line)) => lines.push(line),
            Ok(None) => return (lines, false),
            Err(_) => return (lines, true),
        }
    }
}

/// How the lines after a HELLO are read.
fn session(text: &[u8]) -> Vec<Result<Step, Refused>> {
    let (lines, fault) = as_they_came(&[b"HELLO 2 w\n", text]);
    assert!(!fault);
    let read = |line| match line {
        Line::Session(step) => step,
        other => panic!("{other:?}"),
    };
    lines.into_iter().skip(1).map(read).collect()
}

fn hello_of(line: &str) -> Result<LeaseHolder, Refused> {
    match lines(&[line.as_bytes(), b"\n"]) {
        (mut lines, false) => match lines.remove(0) {
            Line::Hello(hello) => hello,
            other => panic!("{other:?}"),
        },
        fault => panic!("{fault:?}"),
    }
}

/// A name, and a lease within its limits.
#[test]
fn hello_opts_in() {
    let good =
        |worker: &str, lease_seconds| Ok(LeaseHolder { worker: worker.into(), lease_seconds });
    assert_eq!(hello_of("HELLO 2 builder-3"), good("builder-3", 60));
    assert_eq!(hello_of("HELLO 2 é 1"), good("é", 1));
    assert_eq!(hello_of("HELLO 2 w 604800"), good("w", 604_800));
    let long = "n".repeat(255);
    assert_eq!(hello_of(&format!("HELLO 2 {long}")), good(&long, 60));
    for version in ["HELLO 1 w", "HELLO 3 w", "HELLO 20 w"] {
        let refused = hello_of(version).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Version, "{version}");
    }
    let too_long = format!("HELLO 2 {long}n");
    let bad = "HELLO|HELLO |HELLO 2|HELLO 2 |HELLO 2  w|HELLO two w|HELLO -2 w|HELLO 2 w 0|HELLO 2 w 604801|HELLO 2 w 1 1|HELLO 2 w \
        |HELLO 2 w +1|HELLO 2 w\r|HELLO 2 a\tb";
    for bad in bad.split('|').chain([&*too_long]) {
        assert!(matches!(hello_of(bad), Err(Refused { code: ErrorCode::Usage, .. })), "{bad:?}");
    }
}

/// A hold is not over before its time.
#[test]
fn parts_of_a_second_are_held_whole() {
    let seconds = |millis| HoldTime::lasting(Duration::from_millis(millis)).unwrap().seconds();
    assert_eq!([0, 1, 1_000, 1_001].map(seconds), [0, 1, 1, 2].map(Some));
}

/// A connection that begins otherwise stays classic, and one that has opted in stays so.
#[test]
fn the_first_line_decides() {
    let (found, fault) = lines(&[b"READY\nHELLO 2 w\n"]);
    assert_eq!((found.len(), fault), (1, true));
    for classic in ["hello 2 w\n", "HELLO2 w\n", " HELLO 2 w\n", "HELLO"] {
        let (found, _) = lines(&[classic.as_bytes()]);
        assert!(found.is_empty(), "{classic:?}");
    }
    assert!(session(b"HELLO 2 w\n")[0].is_err());
    assert!(session(b"DONE alpha 0\n")[0].is_err(), "a classic DONE is none of protocol 2");
}

/// Every request is read as it is written, whatever its line contains.
#[test]
fn lines_are_requests() {
    let as_written = "READY|READY 86400|DONE 9223372036854775807 -9223372036854775808|BEAT 12|BEAT 12 20|RELEASE 12|QUIT|STATUS|WHY é\t|\
        QUEUE 10000|LOG 1|HEALTH|METRICS|REQUEUE alpha|RETRY alpha|RETRY-OF alpha my list|HOLD a -|HOLD a 315360000 why  not|\
        UNHOLD a|UNHOLD-ALL a|HOLD-FETCHER f 7 why  not|UNHOLD-FETCHER f|BUMP a|FORGET a|CANCEL a|CANCEL-RUNNING a|ADD a  1  x|PAUSE|RESUME|DRAIN|ACCEPT-INPUT|RUN-FETCHER links";
    let otherwise = [
        ("READY 0", "READY"),
        ("DONE 007 +7", "DONE 7 7"),
        ("HOLD a - ", "HOLD a -"),
        ("HOLD-ALL a 07 -", "HOLD-ALL a 7 -"),
    ];
    for (line, written) in as_written.split('|').map(|line| (line, line)).chain(otherwise) {
        let request = Request::read(line.as_bytes()).unwrap();
        assert_eq!(request.to_string(), written);
        assert_eq!(request.name(), line.split(' ').next().unwrap());
        assert_eq!(session(format!("{line}\n").as_bytes()), [Ok(request.into())], "{line}");
    }
}

/// A DONE and the READY after it are one step, if they came together.
#[test]
fn an_end_and_the_next_job_are_one_step() {
    let next = |seconds| {
        let done = Done { attempt: Attempt(1), code: 7, asks: crate::verbs::Asks::NOTHING };
        Step::DoneReady(
            done,
            Ready {
                seconds: Wait::of(Duration::from_secs(seconds)),
                fetchers: crate::verbs::Fetchers::Unsaid,
            },
        )
    };
    assert_eq!(session(b"DONE 1 7\nREADY\n"), [Ok(next(0))]);
    assert_eq!(session(b"DONE 1 7\nREADY 86400\n"), [Ok(next(86_400))]);
    for apart in ["DONE 1 7\nBEAT 1\n", "BEAT 1\nREADY\n", "DONE 1 7\nREADY \n"] {
        assert_eq!(session(apart.as_bytes()).len(), 2, "{apart:?}");
    }
    assert_eq!(session(b"DONE 1 7\nREADY").len(), 1);
}

/// Everything else is a fault, and the lines after it count.
#[test]
fn bad_lines_are_faults() {
    let too_long = format!("HOLD a - {}", "x".repeat(1_001));
    let bad = "| |READY |READY -1|READY +1|READY 86401|READY 1 2|READY 99999999999999999999|READY\r|ready|\
        DONE|DONE 1|DONE 1 |DONE 1 x|DONE x 0|DONE -1 0|DONE +1 0|DONE 1 0 more|DONE 1  0|DONE 9223372036854775808 0|\
        DONE 1 9223372036854775808|DONE 0x1 0|DONE ١ 0|BEAT|BEAT |BEAT 1 86401|BEAT 1 2 3|BEAT one|RELEASE|RELEASE -1|QUIT now|STATUS x|\
        WHY|WHY |WHY a b|QUEUE|QUEUE 0|QUEUE 10001|LOG -1|HOLD a|HOLD a 315360001|HOLD a - why\tnot|RETRY|RETRY a b|RETRY-OF a|\
        RETRY-OF a b\t|PAUSE 1|RESUME 1|DRAIN 1|ACCEPT-INPUT 1|RUN-FETCHER|RUN-FETCHER |RUN-FETCHER a\u{7}|GET / HTTP/1.1";
    for line in bad.split('|').chain([&*too_long]) {
        let found = session(format!("{line}\nBEAT 3\n").as_bytes());
        assert_eq!(found.len(), 2, "{line:?}");
        let bad = matches!(
            found[0],
            Err(Refused { code: ErrorCode::Usage | ErrorCode::Unsupported, .. })
        );
        assert!(bad, "{line:?}: {found:?}");
        assert!(found[1].is_ok(), "{line:?}");
    }
    assert!(session(b"BEAT \xff\n")[0].is_err());
    assert_eq!(session(b"BEAT 1"), [], "an unfinished line is never executed");
}

/// Additions with an ID are counted under their own verb.
#[test]
fn additions_are_counted_by_verb() {
    let step = session(b"ADD-ONCE t1 a 1\nADD b 1\nADD-ONCE t2 c 1\n").remove(0).unwrap();
    assert_eq!(step.verbs(), [Some(("ADD", 1)), Some(("ADD-ONCE", 2))]);
}

/// A line that is too long is one fault, in bounded memory, and the next line counts.
#[test]
fn a_long_line_is_skipped() {
    let long = format!("{}\nBEAT 3\n", "x".repeat(3 * LINE_MAX_BYTES));
    for size in [1_000, LINE_MAX_BYTES, LINE_MAX_BYTES + 1, long.len()] {
        let (mut codec, mut bytes, mut found) =
            (LineCodec::new(true, true), BytesMut::new(), Vec::new());
        bytes.extend_from_slice(b"HELLO 2 w\n");
        for piece in long.as_bytes().chunks(size) {
            bytes.extend_from_slice(piece);
            while let Some(line) = codec.decode(&mut bytes).unwrap() {
                found.push(line);
            }
            assert!(bytes.len() <= LINE_MAX_BYTES, "{size}");
        }
        assert_eq!(found.len(), 3, "{size}: {found:?}");
        assert!(matches!(found[1], Line::Session(Err(Refused { code: ErrorCode::Usage, .. }))));
        assert!(matches!(found[2], Line::Session(Ok(_))));
    }
}

/// While it is skipped, the connection counts as waiting for its end, though nothing of it is kept.
#[test]
fn a_long_line_waits_for_its_end() {
    let (mut codec, mut bytes) = (LineCodec::new(true, true), BytesMut::from("HELLO 2 w\n"));
    assert!(codec.decode(&mut bytes).unwrap().is_some() && !codec.is_waiting(&bytes));
    bytes.extend_from_slice(&[b'x'; LINE_MAX_BYTES + 1]);
    assert!(codec.decode(&mut bytes).unwrap().is_some());
    assert!(bytes.is_empty() && codec.is_waiting(&bytes));
    bytes.extend_from_slice(b"\n");
    assert!(codec.decode(&mut bytes).unwrap().is_none() && !codec.is_waiting(&bytes));
}

/// Answers are single lines, whatever is in them.
#[test]
fn answers_are_lines() {
    let job = task("alpha", " 0 1");
    let mut bytes = BytesMut::new();
    for answer in [
        Answer::Job(Job::of(Some(Attempt(7)), &job)),
        Answer::Job(Job::of(None, &job)),
        Answer::NoJobs(Idle::default()),
        Answer::NoJobs(Idle { paused: Some(2), due: Some(0), ..Idle::default() }),
        Answer::NoJobs(Idle { busy: 3, delayed: 2, held: 1, ..Idle::default() }),
        Answer::Ok,
        Answer::Stop,
        Answer::Lost,
        Refused::new(ErrorCode::Busy, "two\r\nlines").into(),
    ] {
        answer.encode(&mut bytes);
    }
    let text = "JOB 7 alpha  0 1\nJOB alpha  0 1\nNOJOBS\nNOJOBS paused 2 due 0\nNOJOBS busy 3 delayed 2 held 1\nOK\nSTOP\nLOST\nERROR busy two  lines\n";
    assert_eq!(bytes, text.as_bytes());
}

fn task(key: &str, payload: &str) -> Row {
    Row { key: Key::new(key).unwrap(), payload: payload.to_owned() }
}

/// A task is a line of a list with nothing to strip.
#[test]
fn tasks_are_lines() {
    let add = |key, payload| Ok(Step::Adds(vec![Addition { task: task(key, payload), id: None }]));
    for (line, key, payload) in
        [("ADD a 1", "a", "1"), ("ADD a  1  x", "a", " 1  x"), ("ADD é\t \u{7}", "é\t", "\u{7}")]
    {
        assert_eq!(session(format!("{line}\n").as_bytes()), [add(key, payload)], "{line:?}");
    }
    let id = Name::read("x:1");
    let once = Ok(Step::Adds(vec![Addition { task: task("a", " 1"), id }]));
    assert_eq!(session(b"ADD-ONCE x:1 a  1\n"), [once]);
    let long = format!("ADD {} 1", "k".repeat(4097));
    let long_id = format!("ADD-ONCE {} a 1", "x".repeat(256));
    let bad = "ADD-ONCE|ADD-ONCE x a|ADD-ONCE  a 1|ADD|ADD |ADD a|ADD a |ADD  a 1|ADD a 1 |ADD a 1\r|ADD a 1\u{1c}";
    for line in bad.split('|').chain([&*long, &*long_id]) {
        let found = session(format!("{line}\n").as_bytes());
        assert!(
            matches!(found[..], [Err(Refused { code: ErrorCode::Usage, .. })]),
            "{line:?}: {found:?}"
        );
    }
    let found = session(b"CANCEL a\nADD b 1\nADD c 2\nREADY\n");
    let adds = ["b 1", "c 2"]
        .map(|line| Addition { task: single_task(line.as_bytes()).unwrap(), id: None });
    assert_eq!(found[1], Ok(Step::Adds(adds.into())));
}

/// However many come together, the number in one step is limited.
#[test]
fn a_step_has_so_many_tasks() {
    let found = session("ADD a 1\n".repeat(ADDS_MAX + 1).as_bytes());
    let counts = found.iter().map(|step| match step {
        Ok(Step::Adds(adds)) => adds.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [ADDS_MAX, 1]);
}

/// Only an operator's ADD may be long, and its room is freed afterwards.
#[test]
fn a_long_task_takes_room_for_itself_alone() {
    let decode = |is_operator: bool, line: &[u8]| {
        let (mut codec, mut bytes) = (LineCodec::new(true, is_operator), BytesMut::new());
        bytes.extend_from_slice(b"HELLO 2 w\n");
        assert!(matches!(codec.decode(&mut bytes), Ok(Some(Line::Hello(Ok(_))))));
        let mut found = Vec::new();
        for piece in line.chunks(10_000) {
            bytes.extend_from_slice(piece);
            found.extend(codec.decode(&mut bytes).unwrap());
        }
        assert!(codec.decode(&mut bytes).unwrap().is_none());
        assert!(bytes.capacity() <= 16 * 1024, "{} bytes are kept", bytes.capacity());
        found
    };
    let line = |length: usize| [b"ADD k ".as_slice(), &vec![b'x'; length - 2], b"\n"].concat();
    let most = 1024 * 1024;
    let found = decode(true, &line(most));
    assert!(matches!(&found[..], [Line::Session(Ok(Step::Adds(adds)))]
        if adds[0].task.payload.len() == most - 2));
    for (is_operator, length) in [(true, most + 1), (true, 2 * most), (false, LINE_MAX_BYTES + 1)] {
        let found = decode(is_operator, &line(length));
        assert!(
            matches!(found[..], [Line::Session(Err(Refused { code: ErrorCode::Usage, .. }))]),
            "{length}: {found:?}"
        );
    }
}
