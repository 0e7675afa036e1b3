//! What must hold of the lines of a connection, whatever bytes come. Used by the fuzz target and, with
//! the same corpus, by the property test `protocol/tests/corpus.rs`.

use bytes::BytesMut;
use shiftboss_protocol::verbs::{Request, VERBS};
use shiftboss_protocol::wire::session::Step;
use shiftboss_protocol::wire::{LINE_MAX_BYTES, Line, LineCodec};

/// Reads `bytes` whole, and in so many pieces: nothing panics, memory is bounded, and the pieces make no
/// difference.
pub fn check(bytes: &[u8], pieces: usize, may_opt_in: bool) {
    let whole = lines(&[bytes], may_opt_in);
    let size = (bytes.len() / (pieces + 1)).max(1);
    let cut: Vec<&[u8]> = bytes.chunks(size).collect();
    assert_eq!(lines(&cut, may_opt_in), whole);
    if !may_opt_in {
        assert!(whole.0.iter().all(|line| matches!(line, Line::Classic(_))));
    }
}

/// The lines of a connection that sent these pieces and closed its side, and whether a fault ended it.
fn lines(pieces: &[&[u8]], may_opt_in: bool) -> (Vec<Line>, bool) {
    let (mut codec, mut bytes) = (LineCodec::new(may_opt_in, may_opt_in), BytesMut::new());
    let mut lines = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match codec.decode(&mut bytes) {
                Ok(Some(line)) => lines.extend(apart(line)),
                Ok(None) => break,
                Err(_) => return (lines, true),
            }
        }
        assert!(bytes.len() <= LINE_MAX_BYTES, "no more than a line waits");
    }
    loop {
        match codec.decode_eof(&mut bytes) {
            Ok(Some(line)) => lines.extend(apart(line)),
            Ok(None) => return (lines, false),
            Err(_) => return (lines, true),
        }
    }
}

/// A verb with these arguments: what is a request is read again as it is written.
pub fn check_verb(which: usize, arguments: &[u8]) {
    let verb = &VERBS[which % VERBS.len()];
    if let Ok(request) = Request::read(&[verb.name.as_bytes(), b" ", arguments].concat()) {
        assert_eq!(request.name(), verb.name);
        again(request);
    }
}

fn again(request: Request) -> Line {
    assert_eq!(Request::read(request.to_string().as_bytes()).as_ref(), Ok(&request));
    Line::Session(Ok(Step::from(request)))
}

/// A step as the lines that it was: how the bytes came decides what is joined. Each is read again as it is written.
fn apart(line: Line) -> Vec<Line> {
    let requests: Vec<Request> = match line {
        Line::Session(Ok(Step::One(request))) => vec![request],
        Line::Session(Ok(Step::DoneReady(done, ready))) => vec![done.into(), ready.into()],
        Line::Session(Ok(Step::Adds(adds))) => adds.into_iter().map(Request::from).collect(),
        line => return vec![line],
    };
    requests.into_iter().map(again).collect()
}
